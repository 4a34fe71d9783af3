"""Stands for the speech server: what it says is known, and tests decide when it says it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import numpy as np
import numpy.typing as npt

from cosyvoice_client import SAMPLE_RATE, AudioChunk, ClientError, SpeechRequest
from cosyvoice_client.words import TimedWord
from fake_text import FakeTextSpeech

Samples = npt.NDArray[np.float32]


def tone(seconds: float, hertz: float = 220.0) -> Samples:
    """A sine of a third of full scale."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (0.3 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


class FakeUpstream:
    """Speaks ``chunks`` for every request.

    Attributes:
        rate, token_rate: samples and speech tokens per second of the chunks.
        words_by: how words are timed, where they are asked for; empty for a server that tells none. The words
            of a whole text last as long as each other.
        told: those words; None for what stands between spaces.
        error: raised after ``error_after`` chunks.
        gates: a chunk from the second on waits until a place is released here; None for no waiting.
        requests, request_ids, names: what was asked for, and for whom.
        texts: speeches of streamed texts, in order.
        most_characters: of a streamed text.
        ends_segments: whether a clause of a streamed text is a segment, without a flush.
        is_ready: whether it says that it takes requests.
        may_leave: a streamed text that is left ends only when this is set; None for at once.
        active, cancelled: utterances in progress; those that ended before their last chunk.
    """

    url = "upstream:8001"

    def __init__(self, chunks: Sequence[Samples] = (tone(0.3), tone(0.5))) -> None:
        self.chunks = list(chunks)
        self.rate = SAMPLE_RATE
        self.token_rate = 25
        self.words_by = ""
        self.told: list[str] | None = None
        self.error: Exception | None = None
        self.error_after = 0
        self.gates: asyncio.Semaphore | None = None
        self.requests: list[SpeechRequest] = []
        self.request_ids: list[str] = []
        self.names: list[str | None] = []
        self.active = 0
        self.cancelled = 0
        self.ended = asyncio.Event()
        self.most_characters = 1_000_000
        self.ends_segments = False
        self.may_leave: asyncio.Event | None = None
        self.is_ready = True
        self.texts: list[FakeTextSpeech] = []

    async def speak(
        self, request: SpeechRequest, request_id: str = "", name: str | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        self.requests.append(request)
        self.request_ids.append(request_id)
        self.names.append(name)
        self.active += 1
        whole = False
        words, heard_s = self.words_of(request) if self.words_by and request.words else [], 0.0
        try:
            for index, samples in enumerate(self.chunks):
                self.fail_at(index)
                if self.gates is not None and index:
                    await self.gates.acquire()
                last = index == len(self.chunks) - 1
                reason = "stop" if last else ""
                heard_s += len(samples) / self.rate
                told = [word for word in words if word.end_s <= heard_s + 1e-6]
                words = words[len(told) :]
                yield AudioChunk(
                    samples,
                    0.0,
                    reason,
                    sample_rate=self.rate,
                    token_rate=self.token_rate,
                    words=told,
                    words_by=self.words_by if request.words else "",
                )
            self.fail_at(len(self.chunks))
            whole = True
        finally:
            self.active -= 1
            self.cancelled += not whole
            self.ended.set()

    def words_of(self, request: SpeechRequest) -> list[TimedWord]:
        texts = [turn["text"] for turn in request.turns or ()] or [request.text]
        words = self.told or " ".join(texts).split()
        each_s = len(self.samples) / self.rate / len(words)
        return [TimedWord(word, number * each_s, (number + 1) * each_s) for number, word in enumerate(words)]

    def fail_at(self, index: int) -> None:
        if self.error is not None and index == self.error_after:
            raise self.error

    def speak_text(
        self, request: SpeechRequest, request_id: str = "", name: str | None = None
    ) -> FakeTextSpeech:
        self.requests.append(request)
        self.request_ids.append(request_id)
        self.names.append(name)
        if self.error is not None and self.error_after == 0:
            raise self.error
        self.texts.append(FakeTextSpeech(self, request))
        return self.texts[-1]

    async def ready(self, timeout_s: float) -> bool:
        if isinstance(self.error, ClientError):
            raise self.error
        return self.is_ready

    async def close(self) -> None:
        pass

    @property
    def samples(self) -> Samples:
        """All that it says."""
        return np.concatenate(self.chunks)
