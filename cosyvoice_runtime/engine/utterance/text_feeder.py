"""From text that arrives piece by piece to segments that the speech LM can begin with the first clause.

Which clause belongs to which segment depends on the clauses and marks alone, and not on when they came.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.incoming_text import TextMark, TextSource
from cosyvoice_runtime.engine.utterance.request import SpeechRequest, prompt_layout
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.text_segment import SegmentSink
from cosyvoice_runtime.lm.text_stream import TextStream
from cosyvoice_runtime.text import Clause, ClauseStream, SplitLimits, TextFrontEnd, TextTokenizer

ANY_TOKEN = 0
LONGEST_SEGMENT = SplitLimits().maximum
"""Text ids from which on the next clause begins a segment of its own, as where a long text is split."""


class TextFeeder:
    """
    Args:
        layout: what the speech LM reads for a clause that stands alone.
        blocks: of a speech LM that takes text between its speech; None to make each clause a segment.
        first_tokens: speech tokens that the first chunk of a segment needs.
        on_segment: called when a segment begins.

    Attributes:
        sink: takes the segments.
        characters: of the text up to the end of each segment; those of the last segment grow until it ends.
    """

    def __init__(
        self,
        source: TextSource,
        clauses: ClauseStream,
        layout: Callable[[str], Prompt],
        sink: SegmentSink,
        blocks: SpeechLMConfig | None,
        first_tokens: int,
        on_segment: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self._clauses = clauses
        self.characters: list[int] = []
        self._layout = layout
        self.sink = sink
        self._blocks = blocks
        self._first_tokens = first_tokens
        self._on_segment = on_segment
        self._length: int | None = None  # text ids of the segment that takes more

    @classmethod
    def of(
        cls,
        request: SpeechRequest,
        source: TextSource,
        front_end: TextFrontEnd,
        tokenizer: TextTokenizer,
        hop: HopPolicy,
        sink: SegmentSink,
        blocks: SpeechLMConfig | None,
        on_segment: Callable[[], None] = lambda: None,
    ) -> TextFeeder:
        """For a request, whose own text is not read.

        Raises:
            InvalidInput: naming the field of the request that can't be served.
        """
        layout = prompt_layout(request, front_end, tokenizer)
        first_tokens = hop.first_tokens(len(hop.flow_voice(request.voice).speech_tokens))
        clauses = front_end.clauses(request.language)
        return cls(source, clauses, layout, sink, blocks, first_tokens, on_segment)

    async def run(self) -> None:
        """Pass on text until its end.

        Raises:
            InvalidInput: a clause can't be spoken.
            Exception: what the source raised.
        """
        mark: TextMark | str = ""
        while mark is not TextMark.END:
            mark = await self.source.next()
            if isinstance(mark, TextMark):
                self._add(await asyncio.to_thread(self._laid_out, self._clauses.flush))
                self._end_segment()
            else:
                self._add(await asyncio.to_thread(self._laid_out, self._clauses.push, mark))
        self.sink.done()

    def _laid_out(self, split: Callable[..., list[Clause]], *text: str) -> list[tuple[Prompt, int]]:
        return [(self._layout(clause.text), clause.characters) for clause in split(*text)]

    def _add(self, clauses: Sequence[tuple[Prompt, int]]) -> None:
        for prompt, characters in clauses:
            if self._length is not None and self._length + len(prompt.text) > LONGEST_SEGMENT:
                self._end_segment()
            if self._length is None:
                self._begin(prompt, characters)
            else:
                self._extend(prompt.text, characters)

    def _begin(self, prompt: Prompt, characters: int) -> None:
        self._on_segment()
        self.characters.append(characters)
        if self._blocks is None:
            self.sink.begin(prompt)
            return
        self.sink.begin(dataclasses.replace(prompt, text=()), in_pieces=True)
        self._length = 0
        self._extend(prompt.text, characters)
        if not self._is_enough(prompt, self._blocks):
            self._end_segment()

    def _extend(self, text: Sequence[int], characters: int) -> None:
        self.sink.add(text)
        self._length = (self._length or 0) + len(text)
        self.characters[-1] = characters

    def _is_enough(self, prompt: Prompt, blocks: SpeechLMConfig) -> bool:
        """Whether this text alone brings the first chunk; after a prompt of speech that needs more of it."""
        stream = TextStream(blocks, prompt.prompt_text, prompt.prompt_speech, lead_text=prompt.lead_text)
        stream.push(prompt.text)
        spoken = 0
        while spoken < self._first_tokens and stream.take() is not None:
            while not stream.must_fill:
                stream.accept(ANY_TOKEN)
                spoken += 1
            stream.accept(blocks.fill_id)
        return spoken >= self._first_tokens

    def _end_segment(self) -> None:
        if self._length is not None:
            self.sink.end()
        self._length = None
