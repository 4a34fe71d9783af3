"""Events that a listener is told of a context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosyvoice_client.words import TimedWord
from cosyvoice_front.errors import ApiError


@dataclass(frozen=True)
class Audio:
    """The next bytes of the context's audio."""

    data: bytes


@dataclass(frozen=True)
class Words:
    """The next words, of audio that has been sent.

    Attributes:
        by: how they are timed: ``attention`` or ``estimate``.
    """

    words: Sequence[TimedWord]
    by: str


@dataclass(frozen=True)
class Flushed:
    """All text before a flush has been spoken, and its audio sent."""


@dataclass(frozen=True)
class Finished:
    """All has been spoken.

    Attributes:
        finish_reason: stop, length, repetition or incomplete.
        verification: of all segments, where that is asked for.
    """

    finish_reason: str
    seconds: float
    verification: Mapping[str, Any] | None = None

    @property
    def found(self) -> dict[str, Any]:
        """Fields of a protocol's last message, where a verification is asked for."""
        if self.verification is None:
            return {}
        return {"finish_reason": self.finish_reason, "verification": self.verification}


@dataclass(frozen=True)
class Failed:
    """The end of a context, by an error."""

    error: ApiError


@dataclass(frozen=True)
class Cancelled:
    """The end of a context whose speech nobody wants."""


Happening = Audio | Words | Flushed | Finished | Failed | Cancelled
Tell = Callable[[Happening], Awaitable[None]]
