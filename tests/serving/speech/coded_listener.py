"""A listener that keeps what it hears, the voice that speaks to it, and groups of its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from coded_stages import TOKEN_SAMPLES
from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.voice import Voice

PROMPT = np.arange(15, dtype=np.int32)
VOICE = Voice(
    "0" * 64, "words", PROMPT, np.zeros((30, 80), np.float32), np.zeros(192, np.float32), "checkpoint"
)
TEXT = {"target_text": np.array([[b"Hello there."]], np.object_), "seed": np.array([[1]], np.int64)}


class Ear:
    """A listener that keeps chunks and how the answer ended."""

    def __init__(self, call: str | None = None, streams: bool = True) -> None:
        self.chunks, self.errors, self.gone = [], [], False
        self.streams = streams
        self.call = call
        self.waits_for_all = False
        self.heard = asyncio.Event()

    def send(self, chunk) -> None:
        self.chunks.append(chunk)
        self.heard.set()

    def begin_again(self) -> bool:
        if self.waits_for_all:
            self.chunks.clear()
        return not self.chunks

    def complete(self) -> None:
        pass

    def finish(self, error) -> None:
        self.errors.append(error)

    @property
    def tokens(self) -> list[int]:
        return np.concatenate([chunk.samples for chunk in self.chunks])[::TOKEN_SAMPLES].astype(int).tolist()


def words(ear: Ear) -> list[TimedWord]:
    return [word for chunk in ear.chunks for word in chunk.words]


def check(ear: Ear, sent: Sequence[str]) -> None:
    """Words are echoed in order, never go back, and lie in what has been heard by then."""
    heard_s = last_s = 0.0
    for chunk in ear.chunks:
        heard_s += chunk.seconds
        for word in chunk.words:
            assert last_s <= word.start_s <= word.end_s <= heard_s + 0.011
            last_s = word.end_s
    assert [word.text for word in words(ear)] == list(sent)


def groups(count: int) -> list[TokenGroup]:
    return [*(TokenGroup([token]) for token in range(count)), TokenGroup([], FinishReason.STOP)]
