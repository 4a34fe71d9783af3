"""Prompts of the speech LM: runs of ids, each read through one of its embedding tables, and who speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput


class Table(Enum):
    """The source of a segment's embeddings: one of :data:`TABLES`, or a projection."""

    CONTROL = "control"
    TEXT = "text"
    SPEECH = "speech"
    SPEAKER = "speaker"
    """A projection: the one item of such a segment is a speaker embedding."""


TABLES = (Table.CONTROL, Table.TEXT, Table.SPEECH)
"""Embedding tables of the speech LM."""


class PromptSegment(NamedTuple):
    """Consecutive ids of one table, or a speaker embedding."""

    table: Table
    ids: Sequence[Any]


CONTROL_ROWS = 2
SOS = PromptSegment(Table.CONTROL, (0,))
TASK = PromptSegment(Table.CONTROL, (1,))


def num_positions(segments: Sequence[PromptSegment]) -> int:
    """Positions of the sequence that segments take up."""
    return sum(len(segment.ids) for segment in segments)


def prompt_codes(segments: Sequence[PromptSegment], config: SpeechLMConfig) -> list[int]:
    """One number for each id: rows of the text, control and speech tables, counted through in this order."""
    firsts = {
        Table.TEXT: 0,
        Table.CONTROL: config.text_vocab_size,
        Table.SPEECH: config.text_vocab_size + CONTROL_ROWS,
    }
    return [firsts[segment.table] + id_ for segment in segments for id_ in segment.ids]


NO_ADAPTERS = (
    "engine torch and runtime torch serve adapters by voice, and no others; one in the checkpoint's folder "
    "lora is folded in for all"
)
"""The reason why a voice with an adapter is refused by whatever else runs the speech LM."""


@dataclass(frozen=True)
class Prompt:
    """Text to speak and, for a cloned voice, what the reference audio says and how.

    Attributes:
        text: ids of the text to speak; lengths are limited in proportion to it.
        prompt_text: ids of the reference's transcript, or of an instruction.
        prompt_speech: speech tokens of the reference audio at 25 Hz.
        lead_text: ids of an instruction that stands before all other text, also where text comes in blocks:
            CosyVoice3's, up to ``<|endofprompt|>``.
        speaker: embedding of the voice, for a speech LM that reads it (CosyVoice-300M's); empty for none.
        spoken: speech tokens that the text has been spoken with so far, after which draws go on, as
            `lm.spoken` tells them.
        adapter: name of the voice's adapter of the speech LM; empty for none.
    """

    text: Sequence[int]
    prompt_text: Sequence[int] = ()
    prompt_speech: Sequence[int] = ()
    lead_text: Sequence[int] = ()
    speaker: Sequence[float] = ()
    spoken: Sequence[int] = ()
    adapter: str = ""

    @property
    def all_text(self) -> list[int]:
        """Every text id, in the order of feeding."""
        return [*self.lead_text, *self.prompt_text, *self.text]

    @property
    def text_positions(self) -> slice:
        """The positions of the text to speak, where that is there as a whole."""
        first = num_positions([SOS]) + bool(self.speaker) + len(self.lead_text) + len(self.prompt_text)
        return slice(first, first + len(self.text))

    def check(self, config: SpeechLMConfig) -> None:
        """Raise `InvalidInput` for an empty text or an id outside its table."""
        if not len(self.text):
            raise InvalidInput("text", self.text, "at least one text token is needed")
        check_text("text", self.text, config)
        self.check_voice(config)

    def check_voice(self, config: SpeechLMConfig) -> None:
        """Raise `InvalidInput` for an id outside its table, in all but the text to speak."""
        check_text("prompt_text", [*self.lead_text, *self.prompt_text], config)
        # Control ids are not accepted as speech.
        _check_ids("prompt_speech", self.prompt_speech, config.speech_tokens)
        _check_ids("spoken_tokens", self.spoken, config.speech_tokens)

    def segments(self) -> list[PromptSegment]:
        """Layout ``[sos] [speaker] [lead_text prompt_text text] [task_id] [prompt_speech]``."""
        speaker = [PromptSegment(Table.SPEAKER, (tuple(self.speaker),))] if len(self.speaker) else []
        return [
            SOS,
            *speaker,
            PromptSegment(Table.TEXT, self.all_text),
            TASK,
            PromptSegment(Table.SPEECH, self.prompt_speech),
        ]


def split_after(ids: Sequence[int], marker: int | None) -> tuple[Sequence[int], Sequence[int]]:
    """Split ids after the last ``marker``; without one, the first half is empty."""
    end = max((index for index, id_ in enumerate(ids, start=1) if id_ == marker), default=0)
    return ids[:end], ids[end:]


def check_text(field: str, ids: Sequence[int], config: SpeechLMConfig) -> None:
    """Raise `InvalidInput` for a text id outside the embedding table."""
    _check_ids(field, ids, config.text_vocab_size)


def _check_ids(field: str, ids: Sequence[int], size: int) -> None:
    if len(ids) and not 0 <= min(ids) <= max(ids) < size:
        raise InvalidInput(field, list(ids), f"ids are 0 to {size - 1}")
