"""Text that arrives piece by piece and is spoken while it arrives, from its first clause on.

Which clause belongs to which segment depends on the clauses and marks alone, and not on when they came.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.engine.utterance.arriving_words import ArrivingWords
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.incoming_text import TextMark, TextSource
from cosyvoice_runtime.engine.utterance.layout import LaidSegment, SegmentLayout
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import SegmentSink, Sound
from cosyvoice_runtime.lm.text_stream import TextStream
from cosyvoice_runtime.text import Clause, SplitLimits

ANY_TOKEN = 0
LONGEST_SEGMENT = SplitLimits().maximum
"""Text ids after which the next clause begins a segment of its own, as where a long text is split."""


class TextFeeder:
    """Gives arriving text to a sink as segments.

    Args:
        layout: lays out a clause that stands alone.
        hop: says how many speech tokens the first chunk of a segment needs.
        blocks: the speech LM's configuration if it takes text between its speech; None to make each clause a
            segment.
        on_segment: called when a segment begins.
        words: those of the text, if they are told or checked.

    Attributes:
        sink: takes the segments.
        characters: characters up to the end of each segment; the last number grows until its segment ends.
    """

    def __init__(
        self,
        source: TextSource,
        layout: SegmentLayout,
        hop: HopPolicy,
        sink: SegmentSink,
        blocks: SpeechLMConfig | None,
        on_segment: Callable[[], None] = lambda: None,
        words: ArrivingWords | None = None,
    ) -> None:
        self.source = source
        self._words = words
        self._clauses = layout.clauses()
        self.characters: list[int] = []
        self._layout = layout
        self.sink = sink
        self._blocks = blocks
        self._hop = hop
        self._on_segment = on_segment
        self._length: int | None = None  # Text ids of the segment in progress.
        self._sound: Sound | None = None  # Of the last segment.

    async def run(self) -> None:
        """Give the sink all text until its end; an error of a clause or of the source is raised."""
        mark: TextMark | str = ""
        while mark is not TextMark.END:
            mark = await self.source.next()
            if isinstance(mark, TextMark):
                finish = self._clauses.end if mark is TextMark.END else self._clauses.flush
                self._add(await asyncio.to_thread(self._laid_out, finish))
                self._end_segment()
                if self.characters:  # Silent marks at the end count with the words before them.
                    self.characters[-1] = self._clauses.characters
                    if self._words is not None:
                        self._words.trail(self._clauses.characters)
            else:
                if self._words is not None:
                    self._words.push(mark)
                self._add(await asyncio.to_thread(self._laid_out, self._clauses.push, mark))
        self.sink.done()

    def _laid_out(self, split: Callable[..., list[Clause]], *text: str) -> list[tuple[LaidSegment, int]]:
        return [(self._layout(clause), clause.characters) for clause in split(*text)]

    def _add(self, clauses: Sequence[tuple[LaidSegment, int]]) -> None:
        for laid, characters in clauses:
            if laid.pause_s:
                self._end_segment()
                self.sink.pause(laid.pause_s)
            if laid.prompt is not None:
                self._speak(laid, laid.prompt, characters)

    def _speak(self, laid: LaidSegment, prompt: Prompt, characters: int) -> None:
        is_longer = self._length is not None and self._length + len(prompt.text) > LONGEST_SEGMENT
        if is_longer or laid.sound != self._sound:
            self._end_segment()
        self._sound = laid.sound
        if self._length is None:
            self._begin(laid, prompt, characters)
        else:
            self._extend(prompt.text, characters)

    def _begin(self, laid: LaidSegment, prompt: Prompt, characters: int) -> None:
        self._on_segment()
        self.characters.append(characters)
        if self._blocks is None:
            checked = None if self._words is None else self._words.segment(laid, characters)
            self.sink.begin(prompt, sound=self._sound, checked=checked)
            return
        self.sink.begin(dataclasses.replace(prompt, text=()), in_pieces=True, sound=self._sound)
        self._length = 0
        self._extend(prompt.text, characters)
        if not self._is_enough(prompt, self._blocks):
            self._end_segment()

    def _extend(self, text: Sequence[int], characters: int) -> None:
        if self._words is not None:
            self._words.extend(characters)
        self.sink.add(text)
        self._length = (self._length or 0) + len(text)
        self.characters[-1] = characters

    def _is_enough(self, prompt: Prompt, blocks: SpeechLMConfig) -> bool:
        """Whether this text alone brings the first chunk, which takes more text after a prompt of speech."""
        stream = TextStream(blocks, prompt.prompt_text, prompt.prompt_speech)
        stream.push(prompt.text)
        spoken = 0
        first_tokens = self._hop.first_tokens((self._sound or self._layout.sound).prompt_tokens)
        while spoken < first_tokens and stream.take() is not None:
            while not stream.must_fill:
                stream.accept(ANY_TOKEN)
                spoken += 1
            stream.accept(blocks.fill_id)
        return spoken >= first_tokens

    def _end_segment(self) -> None:
        if self._length is not None:
            if self._words is not None:
                self._words.end()
            self.sink.end()
        self._length = None


async def speak_arriving(
    feeder: TextFeeder, chunks: AsyncGenerator[AudioChunk, None]
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks that the driver makes of a feeder's segments, each as soon as it is there.

    An error of the feeder or of the driver ends them.
    """
    async with aclosing(alongside(_read(feeder), chunks)) as spoken:
        async for chunk in spoken:
            feeder.source.spoke()
            ended = chunk.finish_reason is not None
            # This holds of a segment that is cut, too: the next one goes on behind it.
            characters = feeder.characters[chunk.segment] if ended else None
            yield dataclasses.replace(chunk, spoken_characters=characters)


async def _read(feeder: TextFeeder) -> None:
    await feeder.run()
    await feeder.source.until_cancelled()


async def alongside(
    work: Coroutine[Any, Any, None], chunks: AsyncGenerator[AudioChunk, None]
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks, while other work goes on whose failure ends them at once."""
    task = asyncio.create_task(work)
    try:
        while (chunk := await _next(task, chunks)) is not None:
            yield chunk
    finally:
        try:
            await _end(task)
        finally:
            await chunks.aclose()


async def _next(task: asyncio.Task[None], chunks: AsyncGenerator[AudioChunk, None]) -> AudioChunk | None:
    """The next chunk; None at the end."""
    chunk = asyncio.ensure_future(anext(chunks, None))
    try:
        if not task.done():
            await asyncio.wait([task, chunk], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return await chunk
    finally:
        await _end(chunk)


async def _end(work: asyncio.Future[Any]) -> None:
    """Cancel work and wait for its end, even if the waiting task is cancelled: what is freed next must not be
    in use."""
    work.cancel()
    cancelled = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if not work.cancelled():
        work.exception()  # An exception that was read is not logged.
    if cancelled is not None:
        raise cancelled


def within_ceiling(sampling: SamplingOptions) -> SamplingOptions:
    """The options with ``max_tokens`` as a ceiling of each segment, in addition to the limit by its
    length."""
    limits = [limit for limit in (sampling.max_tokens, sampling.ceiling) if limit is not None]
    return dataclasses.replace(sampling, max_tokens=None, ceiling=min(limits, default=None))
