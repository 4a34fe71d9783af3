"""Turns of several speakers, who answer one request one after another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.errors import InvalidInput

TURNS = "turns"
MOST_TURNS = 200
"""Most turns of a request: as many as the 10,000 characters of all have with 50 each."""
TURN_PAUSE_S = 0.3
"""Seconds of silence between two turns, where a request says nothing."""
LONGEST_TURN_PAUSE_S = 3.0
"""The longest such silence in seconds; a ``<break>`` in a turn may add to it."""
_NAMES = {
    "target_text": "text",
    "language": "text",
    "instruct_text": "instructions",
    "reference_text": "instructions",
    "voice": "voice",
}
"""The fields of a turn by the inputs of a request that has one text.

A text may name a language itself. What the words of a kept voice lack are instructions.
"""


@dataclass(frozen=True)
class Turn:
    """A part of a conversation, which one speaker says.

    Attributes:
        voice: name of a voice; empty for the default one.
        text: to speak.
        instructions: how to speak; None for the request's own.
    """

    voice: str
    text: str
    instructions: str | None = None


def read_turns(written: str) -> list[Turn]:
    """The turns of a JSON list of objects with the fields of a :class:`Turn`.

    Raises:
        InvalidInput: it is no such list, has no turn or too many; of a turn it names the field.
    """
    try:
        turns = json.loads(written)
    except (ValueError, RecursionError):
        turns = None
    if not isinstance(turns, list):
        raise InvalidInput(TURNS, written, "a JSON list of objects with voice, text and instructions")
    if not 1 <= len(turns) <= MOST_TURNS:
        raise InvalidInput(TURNS, f"{len(turns)} turns", f"1 to {MOST_TURNS}")
    return [_turn(place(number), turn) for number, turn in enumerate(turns)]


def characters_of(turns: Sequence[Turn]) -> int:
    """The number of characters of all texts together."""
    return sum(len(turn.text) for turn in turns)


def check_pause(field: str, seconds: float, longest_s: float) -> None:
    """Raise an InvalidInput about a field where its silence is none or longer than this."""
    if not 0 <= seconds <= longest_s:
        raise InvalidInput(field, seconds, f"0 to {longest_s:g} seconds")


def place(number: int) -> str:
    """The name of a turn in errors, counted from 0."""
    return f"{TURNS}[{number}]"


@contextmanager
def named(number: int) -> Iterator[None]:
    """Name the turn of this number, and its field, in an InvalidInput about its text or its voice."""
    try:
        yield
    except InvalidInput as error:
        if error.field not in _NAMES:
            raise
        raise error.at(f"{place(number)}.{_NAMES[error.field]}") from None


def _turn(where: str, given: Any) -> Turn:
    if not isinstance(given, dict):
        raise InvalidInput(where, given, "an object with voice, text and instructions")
    if unknown := sorted({*given} - {"voice", "text", "instructions"}):
        raise InvalidInput(where, unknown[0], "the fields voice, text and instructions alone")
    return Turn(
        _string(where, given, "voice"),
        _string(where, given, "text"),
        None if given.get("instructions") is None else _string(where, given, "instructions"),
    )


def _string(where: str, given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise InvalidInput(f"{where}.{name}", value, "a string")
    return value
