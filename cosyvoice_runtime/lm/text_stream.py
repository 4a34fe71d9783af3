"""Text that arrives bit by bit while speech is drawn: when text is fed, and when a draw waits for it.

Text and speech are fed in blocks (5 text tokens, then 15 speech tokens, in the published model). After a
block's speech the model draws the fill marker, which asks for the next text and is itself never fed. When the
text has ended, what is left of it after whole blocks is fed with the task token, and speech runs to its end.
So the order depends on the text alone, and not on when it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.prompt import SOS, TASK, PromptSegment, Table


class StreamState(Enum):
    """Stage of a text stream."""

    WAITING = "waiting"
    """Nothing can be drawn before the next feed."""
    DECODING = "decoding"
    """Within a block: speech tokens, then a fill marker."""
    FINISHING = "finishing"
    """All text is fed: speech tokens, then a stop id."""


class TextStream:
    """Order in which one utterance's text and speech are fed; needs neither network nor sampler.

    The driver feeds what `take` returns, then repeats: draw an id (or use the fill marker when
    `must_fill`), `accept` it, feed it if it is speech. When `take` returns None in the waiting state, more
    text is needed.

    Args:
        prompt_text, prompt_speech: the voice's; its text precedes the pushed text.
        lead_text: fed at the start, outside the blocks: CosyVoice3's instruction, up to ``<|endofprompt|>``.

    Attributes:
        state: stage of the stream.
        speech_left: tokens before the next fill marker.
        num_text: ids of text pushed so far.
        ended: no further text follows.

    Raises:
        InvalidInput: the speech LM knows no such blocks.
    """

    def __init__(
        self,
        config: SpeechLMConfig,
        prompt_text: Sequence[int] = (),
        prompt_speech: Sequence[int] = (),
        lead_text: Sequence[int] = (),
    ) -> None:
        if not config.interleaves_text:
            raise InvalidInput(
                "mix_ratio", config.mix_ratio, "this speech LM takes the text of a segment whole"
            )
        self._fill_id = config.fill_id
        self._text_per_block, self._speech_per_block = config.mix_ratio
        self._text = deque(prompt_text)
        self._prompt_speech = deque(prompt_speech)
        self._opening = [SOS, PromptSegment(Table.TEXT, lead_text)] if lead_text else [SOS]
        self.speech_left = self._speech_per_block - len(prompt_speech) % self._speech_per_block
        self.state = StreamState.WAITING
        self.num_text = 0
        self.ended = False

    @property
    def must_fill(self) -> bool:
        """Whether the block is complete, so that the next id is the fill marker without a draw."""
        return self.fills_after(0)

    def fills_after(self, tokens: int) -> bool:
        """`must_fill` once this many more speech tokens have been accepted."""
        return self.state is StreamState.DECODING and self.speech_left == tokens

    @property
    def ready(self) -> bool:
        """Whether `take` has something to feed."""
        if self.state is not StreamState.WAITING or self.num_text == 0:
            return False
        return self.ended or self._opens_with_speech() or self._has_block()

    def push(self, ids: Sequence[int]) -> None:
        """Add text of any length."""
        self._text.extend(ids)
        self.num_text += len(ids)
        self._interleave_prompt()

    def end(self) -> None:
        """Say that no further text follows."""
        self.ended = True

    def take(self) -> list[PromptSegment] | None:
        """Segments to feed before the next draw; None while decoding, or while more text is needed."""
        if not self.ready:
            return None
        if self._opens_with_speech():
            return self._start(StreamState.DECODING, [])
        if self.ended and not self._has_block():
            return self._start(StreamState.FINISHING, self._final_segments())
        return self._start(StreamState.DECODING, [self._next_text()])

    def accept(self, token: int) -> None:
        """Register a drawn id: a speech token or, within a block, the fill marker."""
        if token != self._fill_id:
            self.speech_left -= 1
        elif self.state is StreamState.DECODING:
            self.speech_left = self._speech_per_block
            self.state = StreamState.WAITING

    def _interleave_prompt(self) -> None:
        while self._prompt_speech and len(self._text) >= self._text_per_block:
            size = min(self._speech_per_block, len(self._prompt_speech))
            speech = [self._prompt_speech.popleft() for _ in range(size)]
            self._opening += [self._next_text(), PromptSegment(Table.SPEECH, speech)]

    def _opens_with_speech(self) -> bool:
        """Whether the prompt ended within a block, whose speech is drawn to its end first."""
        begun = not self._prompt_speech and len(self._opening) > 1
        return begun and self.speech_left < self._speech_per_block

    def _has_block(self) -> bool:
        return not self._prompt_speech and len(self._text) >= self._text_per_block

    def _final_segments(self) -> list[PromptSegment]:
        speech = PromptSegment(Table.SPEECH, list(self._prompt_speech))
        return [PromptSegment(Table.TEXT, list(self._text)), TASK, speech]

    def _next_text(self) -> PromptSegment:
        return PromptSegment(Table.TEXT, [self._text.popleft() for _ in range(self._text_per_block)])

    def _start(self, state: StreamState, segments: list[PromptSegment]) -> list[PromptSegment]:
        self.state = state
        fed, self._opening = [*self._opening, *segments], []
        return fed
