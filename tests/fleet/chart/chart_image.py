"""The images that the chart's pods run, as the Dockerfile says, without a container engine."""

from __future__ import annotations

from functools import cache

import dockerfile
from chart_render import ROOT

STAGES = {"server": "server", "front": "front"}
"""Stages of the Dockerfile by component."""


@cache
def instructions(component: str) -> dict[str, tuple[str, ...]]:
    """The words of each kind of instruction of a component's stage, the last of a kind."""
    found: dict[str, tuple[str, ...]] = {}
    stage = ""
    for command in dockerfile.parse_file(str(ROOT / "Dockerfile")):
        if command.cmd == "FROM":
            stage = command.value[-1]
        elif stage == STAGES[component]:
            found[command.cmd] = command.value
    return found


def variables(component: str) -> dict[str, str]:
    """Variables that an image sets."""
    words = instructions(component)["ENV"]
    return dict(zip(words[::2], words[1::2], strict=True))


def ports(component: str) -> set[int]:
    return {int(port) for port in instructions(component)["EXPOSE"]}


def command(component: str) -> list[str]:
    """The command that a container runs unless it is told otherwise."""
    return list(instructions(component)["CMD"])


def user(component: str) -> int:
    return int(instructions(component)["USER"][0])
