"""The span of a request to the front, and of each of its calls to a server."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cosyvoice_front.spoken import Tally
from cosyvoice_runtime.process.spans import Spans

OWNER_DIGITS = 16
"""Hexadecimal digits of the hash that stands for the name of a key."""
LOST, ELSEWHERE = "lost", "asked_elsewhere"
"""How a call ends that another one follows: after some speech, or before any."""
WHY = {LOST: "resume", ELSEWHERE: "retry"}


class RequestSpan:
    """One request, or one of the utterances of a websocket, until :meth:`end`.

    Args:
        headers: of the trace that the client's request belongs to; empty without one.
    """

    def __init__(self, spans: Spans, headers: Mapping[str, str]) -> None:
        self._spans = spans
        self._span = spans.begin("request", headers)
        self._call: Any = None
        self._calls = self._heard = 0

    def hears(self, tally: Tally) -> None:
        """Note the first audio that the tally counts."""
        heard = tally.heard

        def hear(seconds: float) -> None:
            if not tally.samples:
                self._span.add_event("first audio")
            heard(seconds)

        tally.heard = hear

    def call(self, headers: dict[str, str], heard: int) -> None:
        """Begin a call to a server, and add the headers of its trace; the call before, if any, has ended.

        Args:
            heard: samples that have been heard of the request.
        """
        after, ending = [], LOST if heard > self._heard else ELSEWHERE
        if self._call is not None:
            self._spans.end(self._call, ending)
            after = [self._spans.link(self._call, why=WHY[ending])]
        self._calls, self._heard = self._calls + 1, heard
        self._call = self._spans.begin(
            "call", self._spans.headers(self._span), calls=True, after=after, number=self._calls
        )
        headers |= self._spans.headers(self._call)

    def end(self, name: str, owner: str | None, ending: str, **said: Any) -> None:
        """End the span, and that of its last call.

        Args:
            owner: name of the key, of which a hash is told.
            ending: one of those of the audit log.
            said: further attributes; those that are None are left out.
        """
        if self._call is not None:
            self._spans.end(self._call, ending)
        self._span.update_name(name)
        self._spans.end(self._span, ending, owner=owner and _hashed(owner), **said)


def _hashed(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:OWNER_DIGITS]
