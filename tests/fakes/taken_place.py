"""A place for an utterance that somebody has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_runtime.serving.speech.admission import BOARD_FILE, open_board


@contextmanager
def taken_place(folder: Path) -> Iterator[None]:
    """One place more is taken, whoever's turn it is."""
    board = open_board(folder / BOARD_FILE)
    board["held"] += 1
    try:
        yield
    finally:
        board["held"] -= 1
