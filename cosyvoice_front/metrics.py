"""Numbers of one front, as Prometheus reads them at ``GET /metrics``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyvoice_front.errors import ApiError, GoneError
from cosyvoice_front.noted_answer import NotedAnswer
from cosyvoice_front.spoken import Tally

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FIRST_AUDIO_BUCKETS_S = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
FAULTS = (500, 504)
"""Of ours or of the server's, which is silent; every other status refuses a request."""


class Metrics:
    """Each front has registries of its own. No label is a client's word, so that there are few series.

    What names keys is in a registry apart, as every key reads the page of the rest.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._by_key = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self.requests = Counter(
            "cosyvoice_front_requests_total",
            "Answered requests by route and status; 101 is a websocket, 0 a client that left unanswered.",
            ["route", "status"],
            registry=self._registry,
        )
        self.utterances = Counter(
            "cosyvoice_front_utterances_total",
            "Utterances by ending: spoken, cancelled by the client, refused before audio, failed.",
            ["ending"],
            registry=self._registry,
        )
        self.refusals = Counter(
            "cosyvoice_front_refusals_total",
            "Utterances that were refused, by the error's code; invalid where it has none.",
            ["reason"],
            registry=self._registry,
        )
        self.first_audio = Histogram(
            "cosyvoice_front_first_audio_seconds",
            "From a request that has been read, or the first word of a streamed text, to its first audio.",
            buckets=FIRST_AUDIO_BUCKETS_S,
            registry=self._registry,
        )
        self.speech = Counter(
            "cosyvoice_front_speech_seconds_total",
            "Seconds of speech that the server has sent.",
            registry=self._registry,
        )
        self.resumes = Counter(
            "cosyvoice_front_resumes_total",
            "Servers that were lost by what came of it: resumed by another, or ended, as its speech differs.",
            ["ending"],
            registry=self._registry,
        )
        self.counted_alone = Counter(
            "cosyvoice_front_counted_alone_total",
            "Requests that this front has let in or refused by its own count, as Redis was away.",
            registry=self._registry,
        )
        self.key_speech = Counter(
            "cosyvoice_front_key_speech_seconds_total",
            "Seconds of speech that the server has sent, by the key's name; everybody without keys.",
            ["key"],
            registry=self._by_key,
        )
        self.key_characters = Counter(
            "cosyvoice_front_key_characters_total",
            "Characters of text that the server has spoken from, by the key's name; everybody without keys.",
            ["key"],
            registry=self._by_key,
        )
        self.streams = Gauge("cosyvoice_front_streams", "Utterances in progress.", registry=self._registry)

    def resume(self, ending: str) -> None:
        """Count a lost server by what came of it."""
        self.resumes.labels(ending).inc()

    def page(self) -> bytes:
        """The numbers that name no key, in Prometheus's text format."""
        return generate_latest(self._registry)

    def whole_page(self) -> str:
        """All numbers."""
        return (self.page() + generate_latest(self._by_key)).decode()

    @contextmanager
    def utterance(self, tally: Tally, owner: str, characters: int) -> Iterator[None]:
        """Count an utterance, and how it ends.

        Args:
            tally: what has been spoken of it.
            owner: name of its key.
            characters: of its text, which count with the first audio.
        """
        started = time.monotonic()

        def hear(seconds: float) -> None:
            if not tally.samples:
                self.first_audio.observe(time.monotonic() - started)
                self.key_characters.labels(owner).inc(characters)
            self.speech.inc(seconds)
            self.key_speech.labels(owner).inc(seconds)

        tally.heard = hear
        with self.streams.track_inprogress():
            try:
                yield
            except (GeneratorExit, asyncio.CancelledError, GoneError):
                self.utterances.labels("cancelled").inc()
                raise
            except Exception as error:
                self._fail(error, tally)
                raise
        self.utterances.labels("spoken").inc()

    def _fail(self, error: Exception, tally: Tally) -> None:
        if tally.samples or not isinstance(error, ApiError) or error.status in FAULTS:
            self.utterances.labels("failed").inc()
        else:
            self.utterances.labels("refused").inc()
            self.refusals.labels(error.code or "invalid").inc()


class CountedRequests:
    """Counts the answers of an application by the route that gave them."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._requests = metrics.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = NotedAnswer(send)
        try:
            await self._app(scope, receive, answer)
        finally:
            self._requests.labels(getattr(scope.get("route"), "path", "none"), answer.status).inc()
