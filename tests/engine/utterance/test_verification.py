"""Segments that are checked while they are spoken: what is told, drawn again, or ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from cosyvoice_runtime.alignment.spoken_text import SpokenWord
from cosyvoice_runtime.alignment.words import Word
from cosyvoice_runtime.engine.utterance.followed import FollowedSpeech
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.engine.utterance.verdict import Misspoken, Verification
from cosyvoice_runtime.engine.utterance.verification import (
    MOST_REDRAWS,
    Checks,
    SegmentCheck,
    checked_text,
    verified,
)
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason

SENT = "Before. <b>one two three four"
"""The text as it was sent, whose second segment is spoken without its tag."""
BEGINS = SENT.index(" <b>")
TEXT = "one two three four"
SPANS = [(0, 3), (3, 7), (7, 13), (13, 18)]
WORDS = [
    SpokenWord(Word(word, SENT.index(word) + len(word), len(word)), 0, start, start + len(word))
    for word, start in (("one", 0), ("two", 4), ("three", 8), ("four", 14))
]
PACE = 1.0
RATE, TOKEN = 1000, 40
RIGHT, SKIPS, LOOPS = (0, 1, 2, 3), (0, 1, 3), (0, 1, *[2, 1] * 12, 2)
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def looks(order: Sequence[int]) -> np.ndarray:
    """Rows of eight speech tokens for each text token."""
    rows = np.full((8 * len(order), len(SPANS)), 0.02, np.float32)
    rows[np.arange(len(rows)), np.repeat(order, 8)] = 0.94
    return rows


class Draws:
    """Attempts at a segment, each given by the text tokens that it looks at; chunks have 16 speech tokens."""

    def __init__(self, *orders: Sequence[int], reason: FinishReason = STOP) -> None:
        self._orders, self._reason = orders, reason
        self.begun = 0
        self.closed = 0

    async def __call__(self, redraws: int):
        assert redraws == self.begun
        self.begun += 1
        rows = looks(self._orders[redraws])
        try:
            for first in range(0, len(rows), 16):
                part, ends = rows[first : first + 16], first + 16 >= len(rows)
                samples = np.full(TOKEN * len(part), (redraws + 1) / 10, np.float32)
                reason = self._reason if ends else None
                yield AudioChunk(samples, RATE, 0, reason, rows=part, are_spoken=[True] * len(part))
        finally:
            self.closed += 1


def spoken(draws: Draws, streams: bool, redraws: int = MOST_REDRAWS, **options) -> list[AudioChunk]:
    segment = LaidSegment(None, text=TEXT, words=options.pop("words", WORDS), begins=BEGINS)
    spans = lambda _: SPANS  # noqa: E731
    checks = Checks(options.pop("pace", PACE), TOKEN / RATE, redraws, **options)

    async def work() -> list[AudioChunk]:
        if redraws:
            chunks = verified(draws, checks, checked_text(segment, 1.0, spans), streams)
        else:
            followed = FollowedSpeech(None, checks, 1.0, spans)
            assert followed.begin(segment) is None
            chunks = followed.told(draws(0))
        return [chunk async for chunk in chunks]

    chunks = asyncio.run(work())
    assert draws.closed == draws.begun
    assert [chunk.verification is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    return chunks


def attempts(chunks: Sequence[AudioChunk]) -> set[int]:
    """Which attempts are heard."""
    return {round(10 * float(value)) - 1 for chunk in chunks for value in chunk.samples[:1]}


THREE = Misspoken("skipped", "three", SENT.index("three"), SENT.index("three") + 5)


@pytest.mark.parametrize("streams", [True, False])
def test_report_tells_words_as_they_were_sent_and_changes_nothing(streams):
    chunks = spoken(Draws(SKIPS), streams, redraws=0)
    assert chunks[-1].verification == Verification([THREE], 0)
    assert chunks[-1].finish_reason is STOP
    assert sum(len(chunk.samples) for chunk in chunks) == TOKEN * len(looks(SKIPS))
    assert spoken(Draws(RIGHT), streams, redraws=0)[-1].verification == Verification([], 0)


@pytest.mark.parametrize("streams", [True, False])
def test_right_segment_is_drawn_once(streams):
    draws = Draws(RIGHT)
    chunks = spoken(draws, streams)
    assert chunks[-1].verification == Verification([], 0)
    assert draws.begun == 1
    assert len(chunks) == 2


def test_whole_answer_has_the_first_right_attempt():
    chunks = spoken(Draws(SKIPS, LOOPS, RIGHT), streams=False)
    assert attempts(chunks) == {2}
    assert chunks[-1].verification == Verification([], 2)
    assert chunks[-1].verification.unheard_s > TOKEN / RATE * len(looks(SKIPS))


def test_whole_answer_has_the_attempt_with_least_findings():
    draws = Draws((0, 3), SKIPS, (0,))
    chunks = spoken(draws, streams=False)
    assert draws.begun == 3
    assert attempts(chunks) == {0}  # The first one of those with a single finding each.
    assert chunks[-1].verification.redraws == 2


def test_whole_answer_that_stalls_each_time_is_told_to_its_end():
    chunks = spoken(Draws(LOOPS, LOOPS, LOOPS, reason=LENGTH), streams=False)
    assert attempts(chunks) == {2}
    assert chunks[-1].finish_reason is LENGTH
    assert chunks[-1].verification.findings


def test_stream_is_drawn_again_only_before_it_is_heard():
    early = (1, 0, 1, 0, 1, 2, 3)
    draws = Draws(early, RIGHT)
    chunks = spoken(draws, streams=True)
    assert attempts(chunks) == {1}
    assert chunks[-1].verification == Verification([], 1)
    late = Draws((0, 1, 3))
    assert spoken(late, streams=True)[-1].verification == Verification([THREE], 0)
    assert late.begun == 1


def test_stream_that_stalls_is_ended_with_the_character_that_was_reached():
    draws = Draws(LOOPS, reason=LENGTH)
    chunks = spoken(draws, streams=True)
    assert chunks[-1].finish_reason is FinishReason.INCOMPLETE
    assert chunks[-1].spoken_characters in (SENT.index(" three"), SENT.index(" four"))
    assert chunks[-1].verification.findings
    heard = sum(len(chunk.samples) for chunk in chunks) / TOKEN
    assert heard < len(looks(LOOPS)) - 80
    assert abs(float(chunks[-1].samples[-1])) < 0.01


def test_what_no_word_of_the_text_is_sent_for_lies_behind_the_segments_before():
    """The end of a number that two segments share belongs to a word of the first one."""
    chunks = spoken(Draws(LOOPS, reason=LENGTH), streams=True, words=WORDS[3:])
    assert chunks[-1].spoken_characters == BEGINS
    assert {found.start for found in chunks[-1].verification.findings} == {BEGINS}


def test_verifier_judges_whole_answers_alone_or_with_the_attention():
    heard = []

    async def judge(samples, rate, text):
        heard.append((len(samples), rate, text))
        return len(heard) > 1 or ["three is mumbled"]

    async def wrong(*_):
        return False

    chunks = spoken(Draws(RIGHT, RIGHT), streams=False, judge=judge)
    assert heard == [(TOKEN * len(looks(RIGHT)), RATE, TEXT)] * 2
    assert chunks[-1].verification == Verification([], 1)
    heard.clear()
    [misspoken] = spoken(Draws(SKIPS), False, 0, judge=judge, pace=None)[-1].verification.findings
    assert misspoken == Misspoken("heard", "three is mumbled", SENT.index("one"), len(SENT))
    [misspoken] = spoken(Draws(RIGHT), False, 0, judge=wrong)[-1].verification.findings
    assert (misspoken.kind, misspoken.text) == ("heard", "")


def test_findings_tell_their_turn():
    segment = LaidSegment(None, text=TEXT, words=WORDS, begins=BEGINS, turn=1)
    check = SegmentCheck(Checks(PACE, TOKEN / RATE), checked_text(segment, 1.0, lambda _: SPANS))
    check.hear(AudioChunk(np.zeros(40, np.float32), RATE, 0, rows=looks(SKIPS), are_spoken=[True] * 24))
    [found] = check.findings()
    assert found == Misspoken("skipped", "three", SENT.index("three"), SENT.index(" four"), 1)


def test_verifier_hears_nothing_of_the_segment_before():
    heard = []

    async def judge(samples, rate, text):
        heard.append(samples)
        return True

    async def chunks():
        own, before = np.ones(80, np.float32), np.full(40, 0.5, np.float32)
        yield AudioChunk(own, RATE, 0, STOP)
        yield AudioChunk(before, RATE, 1, earlier_s=0.04)
        yield AudioChunk.silent(0.1, RATE, 1)
        yield AudioChunk(np.concatenate([before, own]), RATE, 1, STOP, earlier_s=0.04)
        yield AudioChunk(before, RATE, 2)

    async def work() -> list[AudioChunk]:
        followed = FollowedSpeech(None, Checks(None, TOKEN / RATE, judge=judge), 1.0, lambda _: SPANS)
        for _ in range(2):
            followed.begin(LaidSegment(None, text=TEXT, words=WORDS))
        return [chunk async for chunk in followed.told(chunks())]

    told = asyncio.run(work())
    assert [chunk.verification is not None for chunk in told] == [True, False, False, True, False]
    assert [samples.tolist() for samples in heard] == [[1.0] * 80] * 2


@pytest.mark.parametrize("streams", [True, False])
def test_nothing_is_known_of_speech_whose_attention_is_not_seen(streams):
    draws = Draws(LOOPS)
    assert spoken(draws, streams, pace=None)[-1].verification == Verification([], 0, checked=False)
    assert draws.begun == 1


def test_error_of_an_attempt_or_of_a_verifier_is_raised():
    async def judge(samples, rate, text):
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model"):
        spoken(Draws(RIGHT), streams=False, judge=judge)


def test_unknown_way_to_verify_is_refused():
    with pytest.raises(InvalidInput, match=r"verify.*always.*off, report, retry"):
        SpeechRequest("Hello.", voice=None, verify="always")
