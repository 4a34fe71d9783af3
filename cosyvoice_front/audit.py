"""Facts of a request to the front for the audit log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from starlette.types import ASGIApp, Receive, Scope, Send

from cosyvoice_client import SpeechRequest
from cosyvoice_front import request_id
from cosyvoice_front.errors import OVERLOADED, ApiError, GoneError
from cosyvoice_front.noted_answer import NotedAnswer
from cosyvoice_front.spoken import Tally
from cosyvoice_runtime.process.audit_log import ERROR, LEFT, OK, REFUSED, AuditLog
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
        tally: what has been spoken.
        ending: how it ended, once that is known.
    """

    peer: str
    route: str = ""
    key: str | None = None
    voice: str | None = None
    characters: int | None = None
    tally: Tally | None = None
    ending: str | None = None
    status: int | None = None
    started: float = field(default_factory=time.monotonic)

    def asks_key(self, scope: Scope) -> None:
        """Note the route, which asks for a key."""
        path = getattr(scope.get("route"), "path", scope["path"])
        self.route = f"{scope.get('method', 'WS')} {path}"

    def utterance(self, request: SpeechRequest, tally: Tally) -> AuditEntry:
        """A new entry for an utterance of this websocket."""
        fresh = replace(self, tally=tally, characters=0, started=time.monotonic())
        fresh.speaks(request)
        return fresh

    def speaks(self, request: SpeechRequest) -> None:
        """Note the voice."""
        self.voice = None if request.reference else request.voice or DEFAULT_VOICE

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

    def write(self, log: AuditLog) -> None:
        """Write the line of a request that has ended."""
        log.write(
            request_id=request_id.current.get(),
            key=self.key,
            peer=self.peer,
            route=self.route,
            voice=self.voice,
            characters=self.characters,
            seconds=None if self.tally is None else round(self.tally.seconds, 3),
            ending=self.ending or OK,
            status=self.status,
            duration_ms=round(1000 * (time.monotonic() - self.started)),
        )


_entry: ContextVar[AuditEntry | None] = ContextVar("audit_entry", default=None)


def current() -> AuditEntry:
    """Entry of the request that is being answered; outside of requests, one that is written nowhere."""
    return _entry.get() or AuditEntry("")


def enter(entry: AuditEntry) -> None:
    """Answer this request in the task from now on."""
    _entry.set(entry)


class AuditedRequests:
    """Writes a line for each request that asks for a key, with or without success."""

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not self._log.on:
            await self._app(scope, receive, send)
            return
        entry = AuditEntry((scope.get("client") or ("",))[0])
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
