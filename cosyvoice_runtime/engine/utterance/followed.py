"""The class that follows an answer while it is heard: its words, and whether each is said once."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from cosyvoice_runtime.alignment.times import Spans
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.verification import Checks, SegmentCheck, checked_text
from cosyvoice_runtime.engine.utterance.word_clock import WordClock, with_words
from cosyvoice_runtime.lm.text_segment import CheckedText


class FollowedSpeech:
    """Takes the segments of an answer before they are spoken, and tells of them as they are heard.

    Args:
        clock: tells when each word is heard; None where nobody asks.
        checks: tell whether words are said once; None where nobody asks.
        speed: of the answer; segments may have their own.
        spans: finds the tokens of a text.
    """

    def __init__(
        self, clock: WordClock | None, checks: Checks | None, speed: float, spans: Callable[[str], Spans]
    ) -> None:
        self.clock, self.checks = clock, checks
        self._speed, self._spans = speed, spans
        self._texts: deque[CheckedText] = deque()

    @property
    def is_asked_for(self) -> bool:
        return self.clock is not None or self.checks is not None

    def begin(self, segment: LaidSegment) -> CheckedText | None:
        """Take the next segment with its words, and return what its driver is to check, if anything."""
        if self.clock is not None:
            self.clock.begin(segment)
        if self.checks is None:
            return None
        text = checked_text(segment, self._speed, self._spans)
        if self.checks.of_draws is not None:
            return text
        self._texts.append(text)
        return None

    def told(self, chunks: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[AudioChunk, None]:
        """The chunks that the driver makes, with what is told of them."""
        if self.checks is not None and self.checks.of_draws is None:
            chunks = self._reported(chunks, self.checks)
        return chunks if self.clock is None else with_words(chunks, self.clock)

    async def _reported(
        self, chunks: AsyncGenerator[AudioChunk, None], checks: Checks
    ) -> AsyncGenerator[AudioChunk, None]:
        """The chunks, of which the last one of each segment tells what was found."""
        check: SegmentCheck | None = None
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk.is_pause or (check is None and not self._texts):
                    yield chunk  # Silence, or what had waited of the last segment.
                    continue
                check = check or SegmentCheck(checks, self._texts.popleft())
                if chunk.finish_reason is None:
                    yield chunk
                    check.hear(chunk)  # Behind it: nobody waits for that.
                    continue
                check.hear(chunk)
                yield dataclasses.replace(chunk, verification=check.told(await check.judged()))
                check = None
