"""Events that a listener is told of a context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cosyvoice_front.errors import ApiError
from cosyvoice_runtime.alignment.words import TimedWord


@dataclass(frozen=True)
class Audio:
    """The next bytes of the context's audio."""

    data: bytes


@dataclass(frozen=True)
class Words:
    """The next words, of audio that has been sent."""

    words: list[TimedWord]


@dataclass(frozen=True)
class Flushed:
    """All text before a flush has been spoken, and its audio sent."""


@dataclass(frozen=True)
class Finished:
    """All has been spoken.

    Attributes:
        finish_reason: stop, length or repetition.
    """

    finish_reason: str
    seconds: float


@dataclass(frozen=True)
class Failed:
    """The end of a context, by an error."""

    error: ApiError


@dataclass(frozen=True)
class Cancelled:
    """The end of a context whose speech nobody wants."""


Happening = Audio | Words | Flushed | Finished | Failed | Cancelled
Tell = Callable[[Happening], Awaitable[None]]
