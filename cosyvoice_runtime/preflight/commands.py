"""Asking other programs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import NamedTuple

SHOWN_CHARACTERS = 200


class Answer(NamedTuple):
    """
    Attributes:
        output: empty unless the program ended with status 0.
        failure: what the program did instead, as the end of a sentence; empty where it answered.
    """

    output: str
    failure: str


def ask(command: Sequence[str], timeout_s: float) -> Answer:
    """Run a program that may be missing, fail, or never end: a driver that hangs blocks whoever asks it."""
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        return Answer("", "is not installed")
    try:
        output, errors = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        program.kill()  # and not waited for: what waits for a driver in the kernel can't be killed
        return Answer("", f"has not answered within {timeout_s:g} s")
    if program.returncode:
        told = (errors or output).strip()[-SHOWN_CHARACTERS:]
        return Answer("", f"ends with status {program.returncode}: {told}")
    return Answer(output, "")
