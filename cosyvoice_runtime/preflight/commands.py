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
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except FileNotFoundError:
        return Answer("", "is not installed")
    except subprocess.TimeoutExpired:
        return Answer("", f"has not answered within {timeout_s:g} s")
    if answer.returncode:
        told = (answer.stderr or answer.stdout).strip()[-SHOWN_CHARACTERS:]
        return Answer("", f"ends with status {answer.returncode}: {told}")
    return Answer(answer.stdout, "")
