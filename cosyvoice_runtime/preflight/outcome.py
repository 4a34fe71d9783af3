"""What a check found, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

FAILED, UNCHECKED = 1, 2
"""Exit codes."""


class Verdict(Enum):
    """Whether what was looked at is as it has to be."""

    PASS = "pass"
    WARN = "warning"
    FAIL = "FAIL"
    UNKNOWN = "unchecked"


class Outcome(NamedTuple):
    """
    Attributes:
        check: what was looked at.
        text: what was found there or, unless it passed, what is wrong and what to do.
    """

    check: str
    verdict: Verdict
    text: str = ""


def passed(check: str, text: str = "") -> Outcome:
    return Outcome(check, Verdict.PASS, text)


def failed(check: str, text: str) -> Outcome:
    return Outcome(check, Verdict.FAIL, text)


def warned(check: str, text: str) -> Outcome:
    """For what should run, but is not as it was written for."""
    return Outcome(check, Verdict.WARN, text)


def unchecked(check: str, text: str) -> Outcome:
    return Outcome(check, Verdict.UNKNOWN, text)


def judged(check: str, problems: list[str], text: str = "") -> Outcome:
    """Failed with these problems, or passed with this text."""
    return failed(check, "; ".join(problems)) if problems else passed(check, text)


def table(outcomes: Iterable[Outcome]) -> str:
    """A line for each, and their sum."""
    rows = list(outcomes)
    width = max(len(row.check) for row in rows)
    lines = [f"{row.verdict.value:9}  {row.check:{width}}  {row.text}".rstrip() for row in rows]
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    shown = [verdict for verdict, count in counts.items() if count or verdict is not Verdict.WARN]
    total = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in shown)
    return "\n".join([*lines, total])


def exit_code(outcomes: Iterable[Outcome], strict: bool = False) -> int:
    """0 when all passed, ``FAILED`` when one failed, ``UNCHECKED`` when not all could be checked.

    Args:
        strict: whether a warning counts as a failure.
    """
    verdicts = {row.verdict for row in outcomes}
    if Verdict.FAIL in verdicts or (strict and Verdict.WARN in verdicts):
        return FAILED
    return UNCHECKED if Verdict.UNKNOWN in verdicts else 0
