"""Utterances whose text arrives while they are spoken, and the messages that bring it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from cosyvoice_runtime.engine.utterance.incoming_text import IncomingText, TextMark
from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.serving.triton.request import Inputs

UTTERANCE_ID = re.compile(r"[A-Za-z0-9_-]{16,128}")
"""The valid ids; a client that knows one can add text, and 16 random characters are 96 bits."""


class TextEvent(Enum):
    """The message about an utterance's text; target_text is applied before it."""

    OPEN = "open"
    PUSH = "push"
    FLUSH = "flush"
    END = "end"
    CANCEL = "cancel"


MARKS = {TextEvent.FLUSH: TextMark.FLUSH, TextEvent.END: TextMark.END}


@dataclass(frozen=True)
class TextMessage:
    """A message that brings text; only the client that opened an utterance may add to it."""

    utterance_id: str
    event: TextEvent
    text: str
    client: str | None

    @classmethod
    def read(cls, inputs: Inputs) -> TextMessage | None:
        """The message in a request, None if it has a whole text; an InvalidInput names an invalid input."""
        name, event = inputs.text("utterance_id"), inputs.text("text_event")
        if name is None:
            if event is not None:
                raise InvalidInput("text_event", event, "it goes with utterance_id only")
            return None
        if not UTTERANCE_ID.fullmatch(name):
            limit = "16 to 128 characters of A-Z, a-z, 0-9, _ and -, drawn at random"
            raise InvalidInput("utterance_id", name, limit)
        return cls(name, _event(event), inputs.text("target_text") or "", inputs.client)


def _event(name: str | None) -> TextEvent:
    try:
        return TextEvent(name)
    except ValueError:
        limit = f"with utterance_id, one of {', '.join(event.value for event in TextEvent)}"
        raise InvalidInput("text_event", name, limit) from None


class OpenUtterances:
    """The open utterances by their clients' ids, in one event loop. Nothing here waits, so messages are
    applied in the order of their requests.

    Args:
        max_characters: most characters of an utterance.
        idle_s: longest time without text and speech.
        now: clock in seconds.
    """

    def __init__(self, max_characters: int, idle_s: float, now: Callable[[], float]) -> None:
        self._max_characters = max_characters
        self._idle_s = idle_s
        self._now = now
        self._open: dict[str, tuple[str | None, IncomingText]] = {}

    @contextmanager
    def open(self, message: TextMessage) -> Iterator[IncomingText]:
        """Open an utterance to which further messages add text.

        Raises:
            InvalidInput: the id is in use, or the first text is invalid.
        """
        name = message.utterance_id
        if name in self._open:
            raise InvalidInput("utterance_id", name, "an utterance of this name has not ended yet")
        text = IncomingText(self._max_characters, self._idle_s, self._now)
        text.push(message.text)
        self._open[name] = message.client, text
        try:
            yield text
        finally:
            del self._open[name]

    def deliver(self, message: TextMessage) -> None:
        """Add a message to its utterance.

        Raises:
            NotFoundError: there is no such utterance, or it is another client's.
            InvalidInput: its text is complete, or this piece is invalid.
        """
        client, text = self._open.get(message.utterance_id, (None, None))
        if text is None or client != message.client:
            remedy = "the utterance has ended, or was never opened"
            raise NotFoundError("utterance_id", message.utterance_id, remedy)
        if message.event is TextEvent.CANCEL:
            text.cancel()
            return
        text.push(message.text)
        if message.event in MARKS:
            text.mark(MARKS[message.event])
