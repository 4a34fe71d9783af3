"""The segments of a request's text as the engine takes them: each with its prompt, voice and pace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cosyvoice_runtime.audio.audio import paced
from cosyvoice_runtime.engine.utterance.request import SpeechRequest, sound_of
from cosyvoice_runtime.families.tokens import END_OF_PROMPT
from cosyvoice_runtime.lm.prompt import Prompt, split_after
from cosyvoice_runtime.lm.text_segment import SegmentSink, Sound
from cosyvoice_runtime.text import (
    ClauseStream,
    Segment,
    TextFrontEnd,
    TextPrompt,
    TextTokenizer,
    cross_lingual,
    instruct,
    zero_shot,
)
from cosyvoice_runtime.text.markup.said import USUAL
from cosyvoice_runtime.voice.voice import Voice


@dataclass(frozen=True)
class LaidSegment:
    """A segment as the engine takes it.

    Attributes:
        prompt: of the speech LM; None where a silence ends the text.
        pause_s: silence before it.
        sound: its voice and pace; None for the utterance's own.
        text: what the prompt's text ids are tokens of.
    """

    prompt: Prompt | None
    pause_s: float = 0.0
    sound: Sound | None = None
    text: str = ""


class SegmentLayout:
    """Lays out the segments of a request's text, each in its voice and pace.

    Args:
        flow_voice: brings a voice into the form that the flow takes.

    Attributes:
        sound: of segments that have no manner of their own.
        voices: all voices so far by their keys, in the form that the flow takes.

    Raises:
        InvalidInput: the text names the field of the request; a call may raise it, too.
    """

    def __init__(
        self,
        request: SpeechRequest,
        front_end: TextFrontEnd,
        tokenizer: TextTokenizer,
        flow_voice: Callable[[Voice], Voice],
    ) -> None:
        self._front_end = front_end.asked(request.text_markup, request.lexicon)
        self._request, self._tokenizer = request, tokenizer
        self._flow_voice = flow_voice
        self._layouts: dict[str, tuple[Voice, Callable[[str], Prompt]]] = {}
        self.voices: dict[str, Voice] = {}
        self.sound = sound_of(self._layout("")[0], request.speed)

    def __call__(self, segment: Segment) -> LaidSegment:
        if not segment.text:
            return LaidSegment(None, segment.pause_s)
        rate, name = segment.manner
        voice, layout = self._layout(name)
        sound = None if segment.manner == USUAL else sound_of(voice, paced(self._request.speed, rate))
        return LaidSegment(layout(segment.text), segment.pause_s, sound, segment.text)

    def segments(self) -> list[LaidSegment]:
        """All segments of the request's text, where that is there as a whole."""
        return list(map(self, self._front_end.spoken(self._request.text, self._request.language)))

    def clauses(self) -> ClauseStream:
        """Takes the request's text where that comes in pieces."""
        return self._front_end.clauses(self._request.language)

    def _layout(self, name: str) -> tuple[Voice, Callable[[str], Prompt]]:
        if name not in self._layouts:
            request = self._request
            if name:
                request = dataclasses.replace(request, voice=request.find_voice(name))
            voice = self._flow_voice(request.voice)
            self.voices[voice.prompt_key] = voice
            self._layouts[name] = voice, prompt_layout(request, self._front_end, self._tokenizer)
        return self._layouts[name]


def give(segments: Sequence[LaidSegment], sink: SegmentSink) -> int:
    """Give a sink all segments of a text; returns how many are spoken."""
    for segment in segments:
        if segment.pause_s:
            sink.pause(segment.pause_s)
        if segment.prompt is not None:
            sink.begin(segment.prompt, sound=segment.sound)
    sink.done()
    return sum(segment.prompt is not None for segment in segments)


def lm_prompts(request: SpeechRequest, front_end: TextFrontEnd, tokenizer: TextTokenizer) -> list[Prompt]:
    """The speech LM's prompt for each segment of the request's text; an InvalidInput names a field."""
    laid = SegmentLayout(request, front_end, tokenizer, flow_voice=lambda voice: voice).segments()
    return [segment.prompt for segment in laid if segment.prompt is not None]


def prompt_layout(
    request: SpeechRequest, front_end: TextFrontEnd, tokenizer: TextTokenizer
) -> Callable[[str], Prompt]:
    """The function that makes the speech LM's prompt of a segment of normalised text.

    Raises:
        InvalidInput: the text names the field of the request; the function may raise it, too.
    """
    marker = tokenizer.id_of(END_OF_PROMPT) if front_end.family.needs_end_of_prompt else None
    made = partial(_prompt, marker=marker, adapter=request.voice.adapter)
    if request.instruct_text is not None:
        return lambda segment: made(instruct(tokenizer, request.instruct_text or "", segment))
    speaker = request.voice.speaker_embedding.tolist() if front_end.family.reads_speaker else ()
    if request.cross_lingual or not request.voice.transcript:
        lead = front_end.missing_instruction("target_text", request.text)
        if lead:
            return lambda segment: made(instruct(tokenizer, lead, segment), speaker=speaker)
        return lambda segment: made(cross_lingual(tokenizer, segment), speaker=speaker)
    lead = front_end.missing_instruction("reference_text", request.voice.transcript, request.text)
    transcript = lead + front_end.transcript(request.voice.transcript, request.language)
    speech = request.voice.speech_tokens.tolist()
    return lambda segment: made(zero_shot(tokenizer, transcript, segment), speech=speech, speaker=speaker)


def _prompt(
    text: TextPrompt,
    *,
    marker: int | None,
    adapter: str,
    speech: Sequence[int] = (),
    speaker: Sequence[float] = (),
) -> Prompt:
    lead, prompt_text = split_after(text.prompt_ids, marker)
    return Prompt(text.target_ids, prompt_text, speech, lead, speaker, adapter=adapter)
