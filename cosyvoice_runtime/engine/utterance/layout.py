"""The segments of a request's text as the engine takes them: each with its prompt, voice and pace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

from cosyvoice_runtime.alignment.said_words import SaidSegment, words_by_segment
from cosyvoice_runtime.alignment.spoken_text import SpokenWord
from cosyvoice_runtime.alignment.words import read_words
from cosyvoice_runtime.audio.audio import paced
from cosyvoice_runtime.engine.utterance.request import FindVoice, SpeechRequest, sound_of
from cosyvoice_runtime.engine.utterance.turn import TURNS, Turn, named
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import END_OF_PROMPT
from cosyvoice_runtime.language_names import language_tag
from cosyvoice_runtime.lm.prompt import Prompt, split_after
from cosyvoice_runtime.lm.text_segment import Sound
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
from cosyvoice_runtime.text.markup.said import USUAL, Manner
from cosyvoice_runtime.text.markup.text_reader import LONGEST_PAUSES_S
from cosyvoice_runtime.voice.voice import Voice


@dataclass(frozen=True)
class LaidSegment:
    """A segment as the engine takes it.

    Attributes:
        prompt: of the speech LM; None where a silence ends the text.
        pause_s: silence before it.
        begins_paragraph: whether a paragraph begins with it; its silence holds that of the paragraph.
        sound: its voice and pace; None for the utterance's own.
        text: what the prompt's text ids are tokens of.
        characters: of the request's text, spoken with it; None where that is not known, which of turns is
            that of the last segment of each.
        words: of the request's text, where they are asked for, and the characters of `text` that say each.
        begins: characters of the text before it, told with its words.
        turn: number of the turn whose segment it is, from 0 on; None of a text. Words are counted in the
            texts of all turns, one behind another.
    """

    prompt: Prompt | None
    pause_s: float = 0.0
    begins_paragraph: bool = False
    sound: Sound | None = None
    text: str = ""
    characters: int | None = None
    words: Sequence[SpokenWord] = ()
    begins: int = 0
    turn: int | None = None

    def speed(self, usual: float) -> float:
        """The pace at which it is spoken, where the request has the usual one."""
        return usual if self.sound is None else self.sound.speed


class SegmentLayout:
    """Lays out the segments of a request's text, each in its voice and pace.

    Args:
        flow_voice: brings a voice into the form that the flow takes.
        with_words: whether segments are to tell their words.

    Attributes:
        sound: of segments that have no manner of their own.
        voices: all voices so far by their keys, in the form that the flow takes.
        first_segment: index in the text of the first segment that is spoken.
        start_character: at which that begins.

    Raises:
        InvalidInput: the text names the field of the request; a call may raise it, too.
    """

    first_segment = start_character = 0

    def __init__(
        self,
        request: SpeechRequest,
        front_end: TextFrontEnd,
        tokenizer: TextTokenizer,
        flow_voice: Callable[[Voice], Voice],
        with_words: bool = False,
    ) -> None:
        self._with_words = with_words
        self._front_end = front_end.asked(request.text_markup, request.lexicon)
        self._request, self._tokenizer = request, tokenizer
        self._flow_voice = flow_voice
        self._layouts: dict[str, tuple[Voice, Callable[[str], Prompt]]] = {}
        self.voices: dict[str, Voice] = {}
        self.sound = sound_of(self._layout("")[0], request.speed)

    def __call__(self, segment: Segment) -> LaidSegment:
        if not segment.text:
            return LaidSegment(None, segment.pause_s)
        pause_s = segment.pause_s + (self._request.paragraph_pause_s if segment.begins_paragraph else 0.0)
        sound = self._sound(segment.manner)
        prompt, characters = self._layout(segment.manner.voice)[1](segment.text), segment.characters
        return LaidSegment(prompt, pause_s, segment.begins_paragraph, sound, segment.text, characters)

    def _sound(self, manner: Manner) -> Sound | None:
        if manner == USUAL:
            return None
        return sound_of(self._layout(manner.voice)[0], paced(self._request.speed, manner.rate))

    def segments(self) -> Iterator[LaidSegment]:
        """The segments of the request's text, where that is there as a whole, each laid out when it is asked
        for: those from its ``start_character`` on, which :attr:`first_segment` tells from then on."""
        request = self._request
        if request.start_character >= len(request.text) > 0:
            limit = f"less than the {len(request.text)} characters of the text"
            raise InvalidInput("start_character", request.start_character, limit)
        reading = self._front_end.read(request.text, request.language)
        for manner in reading.manners:
            self._sound(manner)  # What can't be is refused before anything is spoken.
        if self._with_words:
            segments = words_by_segment(read_words(request.text, self._front_end.markup), reading)
        else:
            segments = ((segment, ()) for segment in reading)
        if request.start_character:
            before, segments = _from(segments, request.start_character)
            self.first_segment = len(before)
            self.start_character = before[-1][0].characters if before else 0
        return self._laid(segments)

    def _laid(self, segments: Iterator[SaidSegment]) -> Iterator[LaidSegment]:
        begins = self.start_character
        for segment, words in segments:
            yield dataclasses.replace(self(segment), words=words, begins=begins)
            begins = segment.characters

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


def _from(segments: Iterator[SaidSegment], character: int) -> tuple[list[SaidSegment], Iterator[SaidSegment]]:
    """The segments before the one that holds a character, and all from there on, among them one that is
    spoken."""
    before: list[SaidSegment] = []
    for segment, words in segments:
        if segment.text and segment.characters > character:
            return before, chain([(segment, words)], segments)
        if not segment.text:  # A silence is the last.
            return before[:-1], chain(before[-1:], [(segment, words)])
        before.append((segment, words))
    return before[:-1], iter(before[-1:])


class TurnsLayout:
    """Lays out the turns of a request, each as a text of its own, with the silence between them.

    Args:
        make: lays out the request of one turn.

    Attributes:
        sound: of the first turn.
        voices: of all turns by their keys, in the form that the flow takes.
        first_segment, start_character: 0, as turns begin at their beginning.

    Raises:
        InvalidInput: a turn can't be spoken, which the text names; or they ask for too much silence.
    """

    first_segment = start_character = 0

    def __init__(self, request: SpeechRequest, make: Callable[[SpeechRequest], SegmentLayout]) -> None:
        language_tag(request.language)  # A language that a turn's text names is the turn's fault.
        find_voice = cache(request.find_voice)
        self.voices: dict[str, Voice] = {}
        self._segments: list[LaidSegment] = []
        sounds, characters, pauses_s = [], 0, 0.0
        for number, turn in enumerate(request.turns):
            with named(number):
                layout = make(_of_turn(request, turn, find_voice))
                laid = list(layout.segments())
            sounds.append(layout.sound)
            self.voices |= layout.voices
            begins, characters = characters, characters + len(turn.text)
            paragraphs_s = request.paragraph_pause_s * sum(segment.begins_paragraph for segment in laid)
            pauses_s += sum(segment.pause_s for segment in laid) - paragraphs_s
            laid = [_of_script(segment, number, begins) for segment in laid]
            self._add(laid, layout.sound, request.turn_pause_s if number else 0.0, characters)
        self.sound = sounds[0]
        if pauses_s > LONGEST_PAUSES_S:
            raise InvalidInput(
                TURNS, f"{pauses_s:g} s", f"pauses of at most {LONGEST_PAUSES_S:g} s in all texts"
            )

    def segments(self) -> Iterator[LaidSegment]:
        """The segments of all turns."""
        return iter(self._segments)

    def _add(self, laid: Sequence[LaidSegment], sound: Sound, pause_s: float, characters: int) -> None:
        """Add the segments of a turn with the silence before it.

        Args:
            characters: of all turns up to this one.
        """
        last = max(number for number, segment in enumerate(laid) if segment.prompt is not None)
        for number, segment in enumerate(laid):
            self._segments.append(
                dataclasses.replace(
                    segment,
                    pause_s=segment.pause_s + pause_s,
                    sound=segment.sound or sound,
                    characters=characters if number == last else None,
                )
            )
            pause_s = 0.0


def _of_script(segment: LaidSegment, turn: int, before: int) -> LaidSegment:
    """The segment of a turn with places counted in the texts of all turns, so many characters of which are
    before this one."""
    words = [
        said._replace(word=dataclasses.replace(said.word, end=before + said.word.end))
        for said in segment.words
    ]
    return dataclasses.replace(segment, words=words, begins=before + segment.begins, turn=turn)


def _of_turn(request: SpeechRequest, turn: Turn, find_voice: FindVoice) -> SpeechRequest:
    return dataclasses.replace(
        request,
        text=turn.text,
        voice=find_voice(turn.voice),
        instruct_text=turn.instructions or request.instruct_text,
        find_voice=find_voice,
        turns=(),
    )


def laid_out(
    request: SpeechRequest,
    front_end: TextFrontEnd,
    tokenizer: TextTokenizer,
    flow_voice: Callable[[Voice], Voice],
    with_words: bool = False,
) -> SegmentLayout | TurnsLayout:
    """The layout of a request whose text, or whose turns, are there as a whole; an InvalidInput names a
    field."""

    def make(request: SpeechRequest) -> SegmentLayout:
        return SegmentLayout(request, front_end, tokenizer, flow_voice, with_words)

    return TurnsLayout(request, make) if request.turns else make(request)


def lm_prompts(request: SpeechRequest, front_end: TextFrontEnd, tokenizer: TextTokenizer) -> list[Prompt]:
    """The speech LM's prompt for each segment of the request's text; an InvalidInput names a field."""
    laid = laid_out(request, front_end, tokenizer, flow_voice=lambda voice: voice).segments()
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
