"""Answers of the driver without the silence at their ends: samples, reasons, tokens, and asked silences."""

from __future__ import annotations

import numpy as np
import pytest

from coded_stages import TOKEN_SAMPLES, spoken_parts
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk, Utterance
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import Sound

RATE = 24_000
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
TOKENS = [0] * 40 + [1] * 30 + [0] * 50 + [1] * 20 + [0] * 35
"""Speech of 30 and of 20 tokens, 40 ms each, with silences around."""
BEFORE, BEHIND = 40 * TOKEN_SAMPLES - 720, 35 * TOKEN_SAMPLES - 720
"""Samples of silence that are left out: windows that speech reaches into begin 10 ms before it, and 20 ms
stay."""


def spoken(trim: str, *parts: float | None, streaming: bool = True, tokens=TOKENS) -> list[AudioChunk]:
    """The chunks of an answer; its parts are segments (None) and seconds of silence."""
    utterance = Utterance(Sound("voice", 15), 1, SamplingOptions(), streaming, trim)
    return spoken_parts(utterance, parts, tokens, HOP)


def samples_of(chunks: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


def ends(chunks: list[AudioChunk]) -> list[tuple[int, FinishReason]]:
    return [(chunk.segment, chunk.finish_reason) for chunk in chunks if chunk.finish_reason is not None]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(("trim", "before", "behind"), [("start", BEFORE, 0), ("both", BEFORE, BEHIND)])
def test_silence_at_the_ends_of_an_answer_is_left_out(trim, before, behind, streaming):
    plain = samples_of(spoken("off", None, None))
    chunks = spoken(trim, None, None, streaming=streaming)
    assert np.array_equal(samples_of(chunks), plain[before : len(plain) - behind])
    assert ends(chunks) == [(0, FinishReason.STOP), (1, FinishReason.STOP)]
    cut = np.sum([chunk.trimmed_s for chunk in chunks], axis=0)
    assert cut == pytest.approx([before / RATE, behind / RATE])


def test_first_chunk_comes_with_the_speech():
    chunks = spoken("start", None)
    assert np.abs(chunks[0].samples).max() > 0.05
    assert len(spoken("off", None)) > len(chunks) > 1


@pytest.mark.parametrize("trim", ["start", "both"])
def test_every_token_is_told_and_each_end_with_the_last_chunk_of_its_segment(trim):
    chunks = spoken(trim, None, None)
    assert [token for chunk in chunks for token in chunk.spoken_tokens] == [*TOKENS, -1, *TOKENS, -1]
    told = [chunk.segment for chunk in chunks if len(chunk.samples)]
    assert told == sorted(told)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("trim", ["start", "both"])
def test_a_silent_answer_has_100_ms_and_its_reason(trim, streaming):
    chunks = spoken(trim, None, None, streaming=streaming, tokens=[0] * 50)
    assert len(samples_of(chunks)) == 2400
    assert ends(chunks) == [(0, FinishReason.STOP), (1, FinishReason.STOP)]
    assert sum(chunk.trimmed_s[0] for chunk in chunks) == pytest.approx(2 * 2.0 - 0.1)


@pytest.mark.parametrize("trim", ["start", "both"])
def test_silences_of_the_text_stay(trim):
    parts = (0.25, None, 0.5, None, 1.0)
    plain, chunks = spoken("off", *parts), spoken(trim, *parts)
    pauses = [(chunk.segment, chunk.seconds) for chunk in chunks if chunk.is_pause]
    assert pauses == [(0, 0.25), (1, 0.5), (2, 1.0)]
    pause, rest = np.split(samples_of(plain), [6000])
    assert np.array_equal(samples_of(chunks), np.concatenate([pause, rest[BEFORE:]]))
    assert sum(chunk.trimmed_s[1] for chunk in chunks) == 0


def test_a_last_chunk_that_only_counts_belongs_to_no_segment():
    *chunks, last = spoken("both", None)
    assert last.only_counts
    assert not any(chunk.only_counts for chunk in chunks)
    assert last.segment == 1
