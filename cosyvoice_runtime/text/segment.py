"""A segment of a text, which the speech LM speaks at once."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.text.markup.said import USUAL, Manner


@dataclass(frozen=True)
class Segment:
    """A segment of a text, which the speech LM speaks at once.

    Attributes:
        text: normalised; empty where a text ends with a silence.
        pause_s: silence before it.
        manner: how it is spoken.
    """

    text: str
    pause_s: float = 0.0
    manner: Manner = USUAL
