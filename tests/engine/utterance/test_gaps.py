"""The silence between segments is as long as a request asks for, however the answer is cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest

from coded_stages import TOKEN_SAMPLES, spoken_parts
from cosyvoice_runtime.engine.utterance.gaps import KEPT_S
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk, Utterance
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import Sound

RATE = 24_000
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
LEAD, SPEECH, END = 40, 60, 35
"""Tokens of silence, of speech and of silence in each segment, 40 ms each."""
TOKENS = [0] * LEAD + [1] * 30 + [0] * 10 + [1] * 20 + [0] * END
EDGE = 720
"""Samples that stay at each end of a segment: 20 ms, and 10 ms of a window into which speech reaches."""
EACH = len(TOKENS) * TOKEN_SAMPLES


def spoken(
    pause_s: float | None,
    *parts: float | None,
    trim: str = "off",
    streaming: bool = True,
    first: int = 0,
    hop: HopPolicy = HOP,
    tokens=TOKENS,
) -> list[AudioChunk]:
    """The chunks of an answer; its parts are segments (None) and seconds of silence."""
    utterance = Utterance(Sound("voice", 15), 1, SamplingOptions(), streaming, trim, pause_s, first)
    return spoken_parts(utterance, parts, tokens, hop)


def samples_of(chunks: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


def silences(chunks: list[AudioChunk]) -> list[int]:
    """Lengths of all runs of silence of over 0.5 s or less than 0.3 s, in samples."""
    loud = np.flatnonzero(samples_of(chunks))
    gaps = np.diff(loud) - 1
    return [int(gap) for gap in gaps if gap and gap != 10 * TOKEN_SAMPLES]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("pause_s", [0.1, 0.5, 5.0])
def test_silence_between_segments_is_as_asked(pause_s, streaming):
    chunks = spoken(pause_s, None, None, None, streaming=streaming)
    kept = 2 * EDGE - round(KEPT_S * RATE)
    assert silences(chunks) == [round(pause_s * RATE) + kept] * 2
    whole = samples_of(spoken(None, None, None, None))
    heard = samples_of(chunks)
    before, behind = (LEAD + SPEECH) * TOKEN_SAMPLES, END * TOKEN_SAMPLES
    assert np.array_equal(heard[:before], whole[:before])
    assert not heard[-behind:].any()
    assert heard[-behind - 1]


def test_segments_keep_a_little_of_their_own():
    assert silences(spoken(0.0, None, None)) == [2 * EDGE]


@pytest.mark.parametrize("pause_s", [0.0, 0.4])
def test_samples_do_not_depend_on_chunks(pause_s):
    found = [
        samples_of(spoken(pause_s, None, 0.25, None, None, streaming=streaming, hop=hop))
        for streaming in (True, False)
        for hop in (HOP, HopPolicy(25, 0, 1, 1, 1, 25), HopPolicy(5, 3, 7, 5, 10, 25))
    ]
    for other in found[1:]:
        assert np.array_equal(found[0], other)


def test_a_silence_that_the_text_asks_for_is_added():
    plain, added = silences(spoken(0.5, None, None)), silences(spoken(0.5, None, 2.0, None))
    assert added == [plain[0] + 2 * RATE]


def test_each_end_and_token_is_told_once():
    chunks = spoken(0.3, None, None)
    assert [token for chunk in chunks for token in chunk.spoken_tokens] == [*TOKENS, -1, *TOKENS, -1]
    ends = [(chunk.segment, chunk.finish_reason) for chunk in chunks if chunk.finish_reason]
    assert ends == [(0, FinishReason.STOP), (1, FinishReason.STOP)]


def test_seconds_left_out_are_told():
    chunks = spoken(0.0, None, None)
    cut = np.sum([chunk.trimmed_s for chunk in chunks], axis=0) * RATE
    assert cut == pytest.approx([LEAD * TOKEN_SAMPLES - EDGE, END * TOKEN_SAMPLES - EDGE])
    assert len(samples_of(chunks)) + cut.sum() == pytest.approx(2 * EACH)


@pytest.mark.parametrize("trim", ["start", "both"])
def test_silence_at_the_ends_is_left_out_beside(trim):
    chunks = spoken(0.5, None, None, trim=trim)
    whole = samples_of(spoken(0.5, None, None))
    end = len(whole) - (END * TOKEN_SAMPLES - EDGE if trim == "both" else 0)
    assert np.array_equal(samples_of(chunks), whole[LEAD * TOKEN_SAMPLES - EDGE : end])


@pytest.mark.parametrize("trim", ["off", "start"])
@pytest.mark.parametrize("pause_s", [None, 0.5])
def test_an_answer_from_a_later_segment_on_is_the_end_of_the_whole(trim, pause_s):
    whole = spoken(pause_s, None, None, None, trim=trim)
    later = spoken(pause_s, None, None, trim=trim, first=1)
    samples = samples_of(later)
    assert np.array_equal(samples, samples_of(whole)[-len(samples) :])
    assert [chunk.segment for chunk in later if chunk.finish_reason] == [1, 2]
    told = samples_of([chunk for chunk in whole if chunk.segment >= 1])
    assert len(samples) == len(told)


@pytest.mark.parametrize("tokens", [[0] * 50, [1] * 50])
def test_segments_that_are_silent_or_never_so_stay(tokens):
    heard = samples_of(spoken(0.5, None, None, tokens=tokens))
    assert len(heard) >= 50 * TOKEN_SAMPLES
    assert (np.abs(heard) > 0).any() == bool(tokens[0])
