"""The flags that are passed to ``trtllm-build``, against its own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cosyvoice_runtime.preflight.commands import ask
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.build.flags import (
    BuildOptions,
    Flag,
    build_flags,
    command,
)

FLAG = re.compile(r"--(\w+)(?: \{([^}]*)\})?")
TIMEOUT_S = 300.0
"""The program imports TensorRT-LLM before it reads its arguments; from a cold disk that takes a minute."""


def check_flags() -> Iterator[Outcome]:
    """Every flag of both layouts is known, and its value among the choices where there are some."""
    answer = ask(["trtllm-build", "--help"], TIMEOUT_S)
    if answer.failure:
        yield failed("trtllm-build", answer.failure)
        return
    known = known_flags(answer.output)
    for flag in passed_flags():
        yield judged(f"trtllm-build --{flag.name}", _problems(flag, known), flag.value)


def passed_flags() -> list[Flag]:
    """Every flag that a build may pass."""
    usual, in_fp8 = (build_flags(BuildOptions(), "speech", "bfloat16", kind) for kind in ("none", "fp8"))
    flags = [*usual, *(flag for flag in in_fp8 if flag not in usual)]
    arguments = command(Path("checkpoint"), Path("engine"), Path("cache"), [])
    places = [Flag(name.removeprefix("--"), "", "") for name in arguments[1::2]]
    return [*places, *flags]


def known_flags(help_text: str) -> dict[str, set[str]]:
    """Names of all flags in a help text, with the values accepted; empty for any."""
    known: dict[str, set[str]] = {}
    for name, choices in FLAG.findall(help_text):
        accepted = {choice.strip() for choice in choices.split(",") if choice.strip()}
        known[name] = known.get(name, set()) | accepted
    return known


def _problems(flag: Flag, known: dict[str, set[str]]) -> list[str]:
    if flag.name not in known:
        return ["this trtllm-build has no such flag"]
    accepted = known[flag.name]
    if accepted and flag.value not in accepted:
        return [f"{flag.value} is passed, but accepted are {', '.join(sorted(accepted))}"]
    return []
