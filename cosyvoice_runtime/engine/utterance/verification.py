"""Whether an answer says its text once: what is found of each segment, and what is done about it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.coverage import Coverage, Finding
from cosyvoice_runtime.alignment.times import Spans
from cosyvoice_runtime.audio.fade import FadeOut
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.engine.utterance.verdict import Misspoken, Verification, Verify
from cosyvoice_runtime.engine.utterance.verifier import Judge
from cosyvoice_runtime.engine.utterance.word_clock import VoiceTiming
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.text_segment import CheckedText, SentWord

MOST_REDRAWS = 2
"""How often a segment is drawn again."""
EARLY = {"repeated", "astray"}
"""Kinds that are sure before a segment is over. How fast it is, and whether a word that was passed over comes
yet, is not known then: of 500 right sentences, one or two in a hundred would be called wrong."""
HEARD = "heard"
"""Kind of what a verifier finds."""

Attempt = Callable[[int], AsyncGenerator[AudioChunk, None]]
"""Speaks a segment with the seed of an attempt, from 0 on."""


class Checks(NamedTuple):
    """How the segments of an answer are checked.

    Attributes:
        rows_per_letter: of the alignment heads; None where attention is not seen, and only a verifier judges.
        token_s: seconds of a speech token at speed 1.
        redraws: how often a segment may be drawn again; 0 where findings are only told.
        goes_on: whether a segment follows one that is ended early.
        judge: of audio, too; only of answers as a whole.
    """

    rows_per_letter: float | None
    token_s: float
    redraws: int = 0
    goes_on: bool = False
    judge: Judge | None = None

    @classmethod
    def of(
        cls, timing: VoiceTiming, verify: Verify, judge: Judge | None = None, goes_on: bool = False
    ) -> Checks | None:
        """The checks that a request asks for; None for ``off``."""
        if verify == "off":
            return None
        pace = None if timing.heads is None else timing.heads.rows_per_letter
        return cls(pace, timing.token_s, MOST_REDRAWS if verify == "retry" else 0, goes_on, judge)

    @property
    def of_draws(self) -> Checks | None:
        """The checks that the engine makes while it draws; None where findings are only told."""
        return self if self.redraws else None


def checked_text(segment: LaidSegment, speed: float, spans: Callable[[str], Spans]) -> CheckedText:
    """The text that a segment should say, whose words have been found.

    Args:
        speed: of a segment without one of its own.
        spans: finds the tokens of a text.
    """
    words = [
        SentWord(word.text, word.end - len(word.text), word.end, start, end)
        for word, _, start, end in segment.words
    ]
    return CheckedText(
        segment.text, segment.speed(speed), spans(segment.text), words, segment.begins, segment.turn
    )


def way_to_verify(request: SpeechRequest, default: Verify, cannot: Callable[[], str]) -> Verify:
    """The way that a request asks for.

    Args:
        default: of an answer as a whole where segments can be judged.
        cannot: tells why they can't be; an empty text where they can. It is called where that matters.

    Raises:
        InvalidInput: it asks for what can't be done.
    """
    verify = request.verify
    if verify == "off" or (verify is None and (request.streaming or default == "off")):
        return "off"
    why = cannot()
    if why and verify is not None:
        raise InvalidInput("verify", verify, f"off: {why}")
    return "off" if why else verify or default


class SegmentCheck:
    """Follows one attempt at a segment, chunk by chunk."""

    def __init__(self, checks: Checks, segment: CheckedText) -> None:
        self._checks, self._segment = checks, segment
        pace = checks.rows_per_letter
        self._coverage = None if pace is None else Coverage(segment.text, segment.spans, pace)
        self._is_seen = False
        self._spoken: list[bool] = []
        self._chunks: list[AudioChunk] = []
        self.seconds = 0.0
        self._heard: FadeOut | None = None
        self._last: AudioChunk | None = None

    def hear(self, chunk: AudioChunk) -> None:
        """Take the next chunk, with its rows of attention."""
        if chunk.rows is not None and self._coverage is not None:
            self._is_seen = True
            self._coverage.push(chunk.rows)
            self._spoken += chunk.are_spoken
        if self._checks.judge is not None:
            self._chunks.append(chunk)
        self.seconds += chunk.seconds
        self._heard = self._heard or FadeOut(chunk.sample_rate)
        if self._last is not None:
            self._heard.hear(self._last.samples)
        self._last = chunk

    @property
    def has_stalled(self) -> bool:
        return self._is_seen and self._coverage is not None and self._coverage.has_stalled

    def findings(self, is_over: bool = True) -> list[Misspoken]:
        """Tell what is wrong by what was looked at; before the end, that more may follow is no fault."""
        if not self._is_seen or self._coverage is None:
            return []
        return [
            self._misspoken(each)
            for each in self._coverage.findings()
            if is_over or each.kind != "unfinished"
        ]

    def is_wrong(self, is_over: bool) -> bool:
        """Whether a segment is better drawn again, before anything of it is heard."""
        found = {each.kind for each in self.findings(is_over)}
        return self.has_stalled or bool(found if is_over else found & EARLY)

    async def judged(self) -> list[Misspoken]:
        """Tell what is wrong with the whole segment, also by its sound."""
        found, judge = self.findings(), self._checks.judge
        if judge is not None and self._chunks:
            rate = self._chunks[0].sample_rate
            own = [chunk.samples[round(chunk.earlier_s * rate) :] for chunk in self._chunks]
            verdict = await judge(np.concatenate(own), rate, self._segment.text)
            told = ([] if verdict else [""]) if isinstance(verdict, bool) else verdict
            place, turn = self._place(0, len(self._segment.text))[1:], self._segment.turn
            found += [Misspoken(HEARD, text, *place, turn) for text in told]
        return found

    def cut(self, chunk: AudioChunk) -> AudioChunk:
        """The latest chunk of a segment that has stalled, without what was said since, and faded out."""
        assert self._coverage is not None, "nothing stalls that is not seen"
        assert self._heard is not None, "nothing stalls before it is heard"
        tokens = sum(self._spoken[: self._coverage.stalled_row])
        said_s = tokens * self._checks.token_s / self._segment.speed - (self.seconds - chunk.seconds)
        samples = chunk.samples[: max(0, round(said_s * chunk.sample_rate))]
        self._heard.hear(samples)
        return dataclasses.replace(
            chunk,
            samples=np.concatenate([samples, self._heard.rest()]),
            finish_reason=FinishReason.INCOMPLETE,
            spoken_characters=self._place(0, self._coverage.reached)[2],
        )

    def _misspoken(self, found: Finding) -> Misspoken:
        return Misspoken(found.kind, *self._place(found.start, found.end), self._segment.turn)

    def _place(self, start: int, end: int) -> tuple[str, int, int]:
        """Words between two characters of the segment's text as they were sent, and where they were."""
        words = [word for word in self._segment.words if word.start < end and start < word.end]
        if not words:
            before = (word.sent_end for word in self._segment.words if word.end <= start)
            behind = max(before, default=self._segment.begins)
            return "", behind, behind
        return " ".join(word.text for word in words), words[0].sent_start, words[-1].sent_end

    def told(self, found: Sequence[Misspoken], redraws: int = 0, unheard_s: float = 0.0) -> Verification:
        is_checked = self._is_seen or self._checks.judge is not None
        return Verification(found, redraws, is_checked, unheard_s)


async def verified(
    attempt: Attempt, checks: Checks, segment: CheckedText, streams: bool
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of a segment that may be drawn again, of which the last one tells what was found.

    An answer as a whole has the attempt in which least is found. In a stream a segment is drawn again only
    while nothing of it was heard, and one that stalls is ended.
    """
    speak = (_guarded if streams else _best)(attempt, checks, segment)
    async with aclosing(speak) as chunks:
        async for chunk in chunks:
            yield chunk


async def _best(attempt: Attempt, checks: Checks, segment: CheckedText) -> AsyncGenerator[AudioChunk, None]:
    best: list[AudioChunk] = []
    least: Verification | None = None
    made_s = 0.0
    for redraws in range(checks.redraws + 1):
        spoken, check = [], SegmentCheck(checks, segment)
        async with aclosing(attempt(redraws)) as chunks:
            async for chunk in chunks:
                check.hear(chunk)
                spoken.append(chunk)
                if check.has_stalled and redraws < checks.redraws:
                    break
        made_s += check.seconds
        if spoken[-1].finish_reason is None:
            continue
        found = await check.judged()
        if least is None or len(found) < len(least.findings):
            best, least = spoken, check.told(found)
        if not found:
            break
    assert least is not None, "the last attempt is spoken to its end"
    for chunk in best[:-1]:
        yield chunk
    unheard_s = made_s - sum(chunk.seconds for chunk in best)
    told = dataclasses.replace(least, redraws=redraws, unheard_s=unheard_s)
    yield dataclasses.replace(best[-1], verification=told)


async def _guarded(
    attempt: Attempt, checks: Checks, segment: CheckedText
) -> AsyncGenerator[AudioChunk, None]:
    unheard_s = 0.0
    for redraws in range(checks.redraws + 1):
        check, was_heard = SegmentCheck(checks, segment), False
        async with aclosing(attempt(redraws)) as chunks:
            async for chunk in chunks:
                check.hear(chunk)
                ends = chunk.finish_reason is not None
                if not was_heard and redraws < checks.redraws and check.is_wrong(ends):
                    unheard_s += check.seconds
                    break
                if check.has_stalled:
                    told = check.told(check.findings(is_over=ends), redraws, unheard_s)
                    yield dataclasses.replace(check.cut(chunk), verification=told)
                    return
                was_heard = True
                if ends:
                    told = check.told(check.findings(), redraws, unheard_s)
                    yield dataclasses.replace(chunk, verification=told)
                    return
                yield chunk
