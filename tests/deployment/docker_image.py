"""The Dockerfile as Docker's own parser reads it, and what a build may read of the source tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import dockerfile

ROOT = Path(__file__).parents[2]
FINAL = "server"


class Instruction(NamedTuple):
    """
    Attributes:
        stage: name of the stage it belongs to; empty before the first.
        values: its words; of an instruction for the shell, one text.
    """

    stage: str
    name: str
    flags: tuple[str, ...]
    values: tuple[str, ...]


def instructions() -> Iterator[Instruction]:
    """In order."""
    stage = ""
    for command in dockerfile.parse_file(str(ROOT / "Dockerfile")):
        if command.cmd == "FROM":
            stage = command.value[-1]
        yield Instruction(stage, command.cmd, command.flags, command.value)


def of(name: str, stage: str | None = None) -> list[Instruction]:
    """The instructions of a kind."""
    return [entry for entry in instructions() if entry.name == name and stage in (None, entry.stage)]


def final(name: str) -> Instruction:
    """The one of its kind in the last stage."""
    [instruction] = of(name, FINAL)
    return instruction


def environment() -> dict[str, str]:
    """Variables that the last stage sets."""
    values = final("ENV").values
    return dict(zip(values[::2], values[1::2], strict=True))


def arguments() -> dict[str, str]:
    """Build arguments and their defaults."""
    return dict(entry.values[0].split("=", 1) for entry in of("ARG") if "=" in entry.values[0])


def bases(**chosen: str) -> dict[str, str]:
    """What each stage is built on, with these build arguments; an empty one takes its default there."""
    values = arguments() | chosen

    def value(match: re.Match[str]) -> str:
        return values[match[1]] or match[2] or ""

    return {entry.stage: re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", value, entry.values[0]) for entry in of("FROM")}


def in_context(path: str) -> bool:
    """Whether .dockerignore lets a path of the source tree through."""
    excluded = False
    for pattern in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if not pattern or pattern.startswith("#"):
            continue
        kept = pattern.startswith("!")
        if _matches(path, pattern.removeprefix("!")):
            excluded = not kept
    return not excluded


def _matches(path: str, pattern: str) -> bool:
    """Whether the pattern is of the path or of a folder above it."""
    parts = Path(path).parts
    heads = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    if pattern.startswith("**/"):
        return any(fnmatch(part, pattern.removeprefix("**/")) for part in parts)
    return any(fnmatch(head, pattern) and head.count("/") == pattern.count("/") for head in heads)
