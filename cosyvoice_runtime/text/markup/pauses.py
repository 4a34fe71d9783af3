"""Silences that a text asks for: ``<break time="500ms"/>`` and ``[pause:0.5s]``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.markup.said import Pause

LONGEST_S = 10.0
"""The longest silence between two words."""
STRENGTHS = {"none": 0.0, "x-weak": 0.0, "weak": 0.25, "medium": 0.5, "strong": 1.0, "x-strong": 1.5}
"""Seconds of a break by its strength, for which the standard (SSML 1.1, section 3.2.3) sets none."""
_TIME = re.compile(r"\s*\+?([0-9]{0,6}(?:\.[0-9]{0,6})?)\s*(ms|s|sec|seconds?)?\s*", re.IGNORECASE)


def of_time(time: str) -> Pause:
    """A silence of ``500ms``, ``1.5s`` or, without a unit, of seconds.

    Raises:
        InvalidInput: it is no time, or longer than :data:`LONGEST_S`.
    """
    seconds = _seconds(time)
    if seconds is None or seconds > LONGEST_S:
        raise InvalidInput(
            "target_text", time, f"a break is 0 to {LONGEST_S:g} s long, such as 500ms or 1.5s"
        )
    return Pause(seconds)


def of_chat_model(time: str | None, strength: str | None = None) -> Pause | None:
    """A silence that a chat model wrote, which knows no limits: at most :data:`LONGEST_S`; None for what is
    no silence."""
    seconds = STRENGTHS.get(strength or "medium") if time is None else _seconds(time)
    return None if seconds is None else Pause(min(seconds, LONGEST_S))


def of_break(attributes: Mapping[str, str]) -> Pause:
    """The silence of a ``break``: its time counts, else its strength, else it is medium.

    Raises:
        InvalidInput: a value is unknown.
    """
    if "time" in attributes:
        return of_time(attributes["time"])
    strength = attributes.get("strength", "medium")
    if strength not in STRENGTHS:
        raise InvalidInput("target_text", strength, f"a break's strength is one of {', '.join(STRENGTHS)}")
    return Pause(STRENGTHS[strength])


def _seconds(time: str) -> float | None:
    """The seconds of a time; None if it is none."""
    found = _TIME.fullmatch(time)
    if not found or not found[1].strip("."):
        return None
    return float(found[1]) / (1000 if (found[2] or "").lower() == "ms" else 1)
