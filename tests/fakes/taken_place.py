"""A place for an utterance that somebody else has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_runtime.serving.speech.places import PLACES_FILE, SharedPlaces
from cosyvoice_runtime.serving.speech.tickets import UNNAMED


@contextmanager
def taken_place(folder: Path) -> Iterator[None]:
    """The first place is taken, whoever's turn it is."""
    places = SharedPlaces(folder / PLACES_FILE)
    number = places.take(1, UNNAMED)
    assert number is not None
    try:
        yield
    finally:
        places.leave(number)
