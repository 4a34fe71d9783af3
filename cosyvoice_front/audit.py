"""Facts of a request to the front for the audit log and for its span."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from cosyvoice_client import SpeechRequest
from cosyvoice_front import request_id
from cosyvoice_front.errors import OVERLOADED, ApiError, GoneError
from cosyvoice_front.keys import EVERYBODY
from cosyvoice_front.noted_answer import NotedAnswer
from cosyvoice_front.spans import RequestSpan
from cosyvoice_front.spoken import Tally
from cosyvoice_runtime.process.audit_log import ERROR, LEFT, OK, REFUSED, AuditLog
from cosyvoice_runtime.process.spans import Spans
from cosyvoice_runtime.settings.front import DEFAULT_VOICE

METRICS = "/metrics"
"""Prometheus reads it every few seconds, of which nobody wants a line each time."""


@dataclass
class AuditEntry:
    """One request, or one of the utterances of a websocket.

    Attributes:
        peer: address of the client, or of the last proxy that is not trusted.
        route: method and path; empty for a request that asks for no key and is not audited.
        key: name of its key; None before it is known.
        voice: None where the request brought a recording, or has no voice.
        format: of the audio, which is told in the span alone.
        begin_span: begins the span of an utterance of a websocket; None where no spans are asked for.
        span: of this request.
        tally: what has been spoken.
        ending: how it ended, once that is known.
    """

    peer: str
    route: str = ""
    key: str | None = None
    voice: str | None = None
    characters: int | None = None
    format: str | None = None
    begin_span: Callable[[], RequestSpan] | None = None
    span: RequestSpan | None = None
    tally: Tally | None = None
    ending: str | None = None
    status: int | None = None
    started: float = field(default_factory=time.monotonic)

    def asks_key(self, scope: Scope) -> None:
        """Note the route, which asks for a key."""
        path = getattr(scope.get("route"), "path", scope["path"])
        self.route = f"{scope.get('method', 'WS')} {path}"

    def utterance(self, request: SpeechRequest, audio_format: str, tally: Tally) -> AuditEntry:
        """A new entry for an utterance of this websocket."""
        span = self.begin_span() if self.begin_span else None
        fresh = replace(self, tally=tally, characters=0, span=span, started=time.monotonic())
        fresh.speaks(request, audio_format)
        return fresh

    def speaks(self, request: SpeechRequest, audio_format: str) -> None:
        """Note the voice and the format of the audio."""
        has_own = request.reference or request.turns
        self.voice = None if has_own else request.voice or DEFAULT_VOICE
        self.format = audio_format

    def hears(self, tally: Tally) -> None:
        """Note what is spoken."""
        self.tally = tally
        if self.span is not None:
            self.span.hears(tally)

    def end(self, ending: str) -> None:
        """Note how it ended; the first time counts."""
        self.ending = self.ending or ending

    def refuse(self, error: ApiError) -> None:
        """Note that it ends by an error; want of room after the first audio is a fault here."""
        self.status = self.status or error.status
        begun = self.tally is not None and self.tally.samples > 0
        self.end(ERROR if begun and error.status == OVERLOADED else ending_of(error.status))

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Note how what is done in the block fails."""
        try:
            yield
        except (GeneratorExit, asyncio.CancelledError, GoneError):
            self.end(LEFT)
            raise
        except ApiError as error:
            self.refuse(error)
            raise
        except Exception:
            self.end(ERROR)
            raise

    def _voice_is_known(self, ending: str) -> bool:
        """Whether its voice has spoken, or was sent or removed; else its name may be any text."""
        if self.format is None:
            return ending == OK
        return self.tally is not None and self.tally.token_rate > 0  # A pause needs no voice.

    def write(self, log: AuditLog) -> None:
        """Write the line of a request that has ended, and end its span."""
        ending = self.ending or OK
        seconds = None if self.tally is None else round(self.tally.seconds, 3)
        if self.span is not None:
            self.span.end(
                self.route,
                None if self.key == EVERYBODY else self.key,
                ending,
                request_id=request_id.current.get(),
                voice=self.voice if self._voice_is_known(ending) else None,
                characters=self.characters,
                format=self.format,
                seconds=seconds,
                status=self.status,
            )
        log.write(
            request_id=request_id.current.get(),
            key=self.key,
            peer=self.peer,
            route=self.route,
            voice=self.voice,
            characters=self.characters,
            seconds=seconds,
            ending=ending,
            status=self.status,
            duration_ms=round(1000 * (time.monotonic() - self.started)),
        )


_entry: ContextVar[AuditEntry | None] = ContextVar("audit_entry", default=None)


def current() -> AuditEntry:
    """Entry of the request that is being answered; outside of requests, one that is written nowhere."""
    return _entry.get() or AuditEntry("")


def begin_call(headers: dict[str, str]) -> None:
    """Add the headers of the trace of the task's request for a call to a server, which begins a span of it
    where spans are asked for."""
    entry = _entry.get()
    if entry is None or entry.span is None:
        headers |= request_id.trace.get() or {}
    else:
        entry.span.call(headers, 0 if entry.tally is None else entry.tally.samples)


def enter(entry: AuditEntry) -> None:
    """Answer this request in the task from now on."""
    _entry.set(entry)


class AuditedRequests:
    """Writes a line for each request that asks for a key, with or without success, and sends its span.

    A websocket has no span but those of its utterances.

    Args:
        spans: makes spans; None where none are asked for.
    """

    def __init__(self, app: ASGIApp, log: AuditLog, spans: Spans | None) -> None:
        self._app = app
        self._log = log
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not (self._log.on or self._spans):
            await self._app(scope, receive, send)
            return
        entry = AuditEntry((scope.get("client") or ("",))[0])
        if self._spans is not None:
            entry.begin_span = partial(RequestSpan, self._spans, request_id.trace.get() or {})
            entry.span = entry.begin_span() if scope["type"] == "http" else None
        enter(entry)
        answer = NotedAnswer(send)
        try:
            await self._app(scope, receive, answer)
        finally:
            entry.status = answer.status or entry.status
            entry.end(ending_of(answer.status))
            if entry.route and not (entry.route.endswith(METRICS) and entry.ending == OK):
                entry.write(self._log)


def ending_of(status: int) -> str:
    """How a request ends that gets this status; 0 is none at all."""
    if status == 0:
        return LEFT
    if status < 400:
        return OK
    return REFUSED if status < 500 or status == OVERLOADED else ERROR
