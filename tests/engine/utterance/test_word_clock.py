"""When words are heard, by rows of attention and sound that come in any parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.words import TimedWord, read_words
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.word_clock import VoiceTiming, WordClock, with_words
from cosyvoice_runtime.lm.generation import FinishReason

TEXT = "One two, three four five: six seven eight."
RATE, TOKEN = 2000, 80
"""Samples of a second, and of a speech token of 40 ms."""
HEADS = AlignmentHeads(((0, 0),), 1.5, 1.9, 1.2, "")


def spans(text: str) -> list[tuple[int, int]]:
    """A token for each three characters."""
    return [(start, min(start + 3, len(text))) for start in range(0, len(text), 3)]


def looks(rows: int, noise: float, seed: int) -> np.ndarray:
    """Rows that wander through the text, some of them anywhere."""
    chance, tokens = np.random.default_rng(seed), len(spans(TEXT))
    places = np.arange(rows)[:, None] * tokens / rows
    shares = np.exp(-((np.arange(tokens) - places) ** 2)) + noise * chance.random((rows, tokens))
    return (shares / shares.sum(1, keepdims=True)).astype(np.float32)


def sound(tokens: int, seed: int) -> np.ndarray:
    """Noise with silences here and there."""
    chance = np.random.default_rng(seed)
    loud = np.repeat(chance.random(tokens) > 0.3, TOKEN)
    return (loud * chance.uniform(-0.5, 0.5, len(loud))).astype(np.float32)


def told(rows: np.ndarray, samples: np.ndarray, cuts: list[int], lag: int) -> list[TimedWord]:
    """Words that a clock tells of chunks that end with these tokens, whose sound is so many tokens late."""
    clock = WordClock(1.0, VoiceTiming(HEADS, spans, TOKEN / RATE, RATE))
    words = matched(read_words(TEXT), [TEXT])
    clock.begin(LaidSegment(None, text=TEXT, words=words, characters=len(TEXT)))
    found, begin, heard = [], 0, 0
    for end in [*cuts, len(rows)]:
        is_last = end == len(rows)
        until = len(samples) if is_last else max(heard, end - lag) * TOKEN
        chunk = AudioChunk(
            samples[heard * TOKEN : until],
            RATE,
            0,
            FinishReason.STOP if is_last else None,
            rows=rows[begin:end],
            are_spoken=[True] * (end - begin),
        )
        found += clock.hear(chunk)
        begin, heard = end, until // TOKEN
    return found


@given(
    rows=st.integers(40, 160),
    noise=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    lag=st.integers(0, 6),
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_times_are_the_same_however_speech_is_cut(rows, noise, lag, seed, data):
    shares, samples = looks(rows, noise, seed), sound(rows, seed)
    cuts = sorted(data.draw(st.sets(st.integers(1, rows - 1), max_size=12)))
    whole = told(shares, samples, [], 0)
    parts = told(shares, samples, cuts, lag)
    assert [word.text for word in parts] == [word.text for word in whole]
    for part, other in zip(parts, whole, strict=True):
        assert (part.start_s, part.end_s) == pytest.approx((other.start_s, other.end_s), abs=1e-9)


def test_the_first_sound_leaves_before_its_words_are_found():
    """They come with the second chunk, and none is lost or told twice."""
    rows, samples = looks(80, 0.0, 1), sound(80, 1)
    clock = WordClock(1.0, VoiceTiming(HEADS, spans, TOKEN / RATE, RATE))
    clock.begin(LaidSegment(None, text=TEXT, words=matched(read_words(TEXT), [TEXT]), characters=len(TEXT)))
    made: list[str] = []

    def chunk(first: int, end: int, reason: FinishReason | None = None) -> AudioChunk:
        part = samples[first * TOKEN : end * TOKEN]
        return AudioChunk(part, RATE, 0, reason, rows=rows[first:end], are_spoken=[True] * (end - first))

    async def chunks() -> AsyncGenerator[AudioChunk, None]:
        for first, end in ((0, 40), (40, 60)):
            made.append("chunk")
            yield chunk(first, end)
        yield chunk(60, 80, FinishReason.STOP)

    hear = clock.hear
    clock.hear = lambda heard: made.append("hear") or hear(heard)  # type: ignore[method-assign]
    found: list[AudioChunk] = []

    async def listen() -> None:
        async for each in with_words(chunks(), clock):
            made.append("sent")
            found.append(each)

    asyncio.run(listen())
    assert made == ["chunk", "sent", "hear", "chunk", "hear", "sent", "hear", "sent"]
    assert {each.words_by for each in found} == {"attention"}
    first, second, _ = (each.words for each in found)
    assert not first
    assert second
    assert [word.text for each in found for word in each.words] == TEXT.split()
