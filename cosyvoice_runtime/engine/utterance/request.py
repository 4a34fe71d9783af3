"""A request for speech, and the chunks of audio that answer it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.words import TimedWord, WordMethod
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import check_speed
from cosyvoice_runtime.audio.silence import TrimSilence, check_trim
from cosyvoice_runtime.engine.utterance.turn import LONGEST_TURN_PAUSE_S, TURN_PAUSE_S, Turn, check_pause
from cosyvoice_runtime.engine.utterance.verdict import Verification, Verify, check_verify
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import Sound
from cosyvoice_runtime.settings.cosyvoice2 import PARAGRAPH_PAUSE_S
from cosyvoice_runtime.text import Lexicon
from cosyvoice_runtime.text.markup import TextMarkup
from cosyvoice_runtime.text.markup.pauses import LONGEST_S
from cosyvoice_runtime.voice.voice import Voice


def fresh_seed() -> int:
    """A seed that can't be foreseen, 0 to 2**63 - 1."""
    return secrets.randbits(63)


def derived_seed(seed: int, purpose: str, segment: int) -> int:
    """Seed of one purpose in one segment, 0 to 2**63 - 1; unrelated to that of any other."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{segment}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


FindVoice = Callable[[str], Voice]
"""Finds a voice by its name; raises an error that names it where there is none."""


def no_voice(name: str) -> Voice:
    """Refuse a change of the voice where there are no others."""
    raise InvalidInput("voice", name, "the request's own voice: there are no others here")


@dataclass(frozen=True)
class SpeechRequest:
    """Text to speak, in a voice.

    A voice with a transcript is continued (zero-shot). ``cross_lingual`` uses its sound alone, as does any
    voice without a transcript; ``instruct_text`` says how to speak instead.

    Attributes:
        text: the text to speak; split into segments when long.
        language: ``auto`` or a tag such as ``zh`` or ``en``.
        text_markup: in which the text is written; None for the front end's own.
        lexicon: words that are spoken as something else is, before those of the front end.
        speed: 0.5 to 2; 1 is the voice's own.
        seed: the same request with the same seed gives the same audio; None draws one.
        sampling: how speech tokens are drawn; its own ``seed`` is not used.
        streaming: whether chunks come as soon as they exist; otherwise one chunk per segment, with the same
            audio.
        find_voice: finds the voices that the text changes to.
        spoken: what has been spoken of its segments, as `lm.spoken.by_segment` gives it; the same speech is
            made of that, and goes on from there.
        trim_silence: the silence that is left out: ``off``, ``start`` (before the speech) or ``both`` (also
            behind it).
        turns: what several speakers say, in place of a text, which is empty then, and of the voice.
        turn_pause_s: silence between two of them, 0 to 3 seconds.
        verify: whether segments are checked for saying their text once: ``off``, ``report`` or ``retry``.
            None reports of answers as a whole where that can be done, and leaves streams unchecked.
        paragraph_pause_s: silence between two paragraphs, beside what their segments have of their own, 0 to
            10 seconds.
        sentence_pause_s: silence between two segments, in place of what they have of their own, 0 to 10
            seconds; None leaves that.
        start_character: the speech begins with the segment that holds this character of the text. Its
            samples are those of the whole speech from there on.

    Raises:
        InvalidInput: an option is out of range or contradicts another.
    """

    text: str
    voice: Voice
    instruct_text: str | None = None
    cross_lingual: bool = False
    language: str = "auto"
    text_markup: TextMarkup | None = None
    lexicon: Lexicon | None = None
    speed: float = 1.0
    seed: int | None = None
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    streaming: bool = True
    find_voice: FindVoice = no_voice
    spoken: Sequence[Sequence[int]] = ()
    trim_silence: TrimSilence = "off"
    turns: Sequence[Turn] = ()
    turn_pause_s: float = TURN_PAUSE_S
    verify: Verify | None = None
    paragraph_pause_s: float = PARAGRAPH_PAUSE_S
    sentence_pause_s: float | None = None
    start_character: int = 0

    def __post_init__(self) -> None:
        check_speed(self.speed)
        check_trim(self.trim_silence)
        check_verify(self.verify)
        if self.seed is not None and not (isinstance(self.seed, Integral) and 0 <= self.seed < 2**63):
            raise InvalidInput("seed", self.seed, "an integer from 0 to 2**63 - 1")
        instructed = self.instruct_text is not None or any(turn.instructions for turn in self.turns)
        if instructed and self.cross_lingual:
            limit = "it can't be combined with instruct_text, or with instructions of turns"
            raise InvalidInput("cross_lingual", True, limit)
        if self.turns and self.text:
            raise InvalidInput("target_text", self.text, "no text beside turns")
        check_pause("turn_pause_s", self.turn_pause_s, LONGEST_TURN_PAUSE_S)
        check_pause("paragraph_pause_s", self.paragraph_pause_s, LONGEST_S)
        check_pause("sentence_pause_s", self.sentence_pause_s or 0.0, LONGEST_S)
        self._check_start()

    def _check_start(self) -> None:
        start = self.start_character
        if not (isinstance(start, Integral) and start >= 0):
            raise InvalidInput("start_character", start, "an integer from 0 on")
        if start and self.turns:
            raise InvalidInput("start_character", start, "0 beside turns")


@dataclass(frozen=True)
class Utterance:
    """The way in which a text is spoken: all that its driver needs besides the text.

    Attributes:
        sound: voice and pace of segments that have none of their own.
        seed: the seeds of all segments are derived from it.
        sampling: how speech tokens are drawn; its own ``seed`` is not used.
        streaming: whether a client listens meanwhile.
        trim_silence, sentence_pause_s: as in the request.
        first_segment: index in the text of the first segment that is spoken.
        with_rows: whether chunks tell `AudioChunk.rows`, where the speech LM's attention is seen.
    """

    sound: Sound
    seed: int
    sampling: SamplingOptions
    streaming: bool
    trim_silence: TrimSilence = "off"
    sentence_pause_s: float | None = None
    first_segment: int = 0
    with_rows: bool = False

    @classmethod
    def of(
        cls, request: SpeechRequest, sound: Sound, first_segment: int = 0, with_rows: bool = False
    ) -> Utterance:
        """The utterance of a request, whose voice has this sound, from this segment of its text on."""
        return cls(
            sound,
            fresh_seed() if request.seed is None else int(request.seed),
            request.sampling,
            request.streaming,
            request.trim_silence,
            request.sentence_pause_s,
            first_segment,
            with_rows,
        )


def sound_of(voice: Voice, speed: float) -> Sound:
    """The sound of a voice, in the form that the flow takes, at a speed."""
    return Sound(voice.prompt_key, len(voice.speech_tokens), speed)


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A stretch of speech.

    Attributes:
        samples: float32 ``[n]`` in [-1, 1].
        sample_rate: per second.
        segment: index of the segment of text it belongs to.
        finish_reason: why the segment ended, on its last chunk; None before.
        spoken_characters: of the text, on the last chunk of a segment, where that is known: of all segments
            when the text came in pieces, else of the last one, and of the last one of each turn.
        is_pause: it is a silence that the text asks for, which no network computed.
        spoken_tokens: all that were drawn by then since the chunk before, as `lm.spoken` tells them; another
            server goes on from all chunks' together.
        earlier_s: seconds at its beginning that belong to segments before, which had waited.
        trimmed_s: seconds of silence left out before and behind the speech, since the chunk before.
        rows, are_spoken: what the speech tokens since the chunk before look at in the segment's text, as
            `TokenGroup` has it, if that is asked for.
        words: words of the text that are over by its end, each told once, if they are asked for.
        words_by: how they are timed; None where nobody asks for them.
        verification: of the segment, on its last chunk; None where it is not checked.
    """

    samples: Floats
    sample_rate: int
    segment: int
    finish_reason: FinishReason | None = None
    spoken_characters: int | None = None
    is_pause: bool = False
    spoken_tokens: Sequence[int] = ()
    earlier_s: float = 0.0
    trimmed_s: tuple[float, float] = (0.0, 0.0)
    rows: Floats | None = None
    are_spoken: Sequence[bool] = ()
    words: Sequence[TimedWord] = ()
    words_by: WordMethod | None = None
    verification: Verification | None = None

    @classmethod
    def silent(cls, seconds: float, sample_rate: int, segment: int) -> AudioChunk:
        """A silence before a segment."""
        samples = np.zeros(round(seconds * sample_rate), np.float32)
        return cls(samples, sample_rate, segment, is_pause=True)

    @property
    def seconds(self) -> float:
        """The duration of the chunk."""
        return len(self.samples) / self.sample_rate

    @property
    def only_counts(self) -> bool:
        """Whether it tells of silence left out behind the speech, and nothing to a listener."""
        return self.trimmed_s[1] > 0 and not len(self.samples) and self.finish_reason is None

    @property
    def spoken_seconds(self) -> float:
        """The duration of speech in it: of a silence that the text asks for, none."""
        return 0.0 if self.is_pause else self.seconds


class Told(NamedTuple):
    """Facts about tokens that were drawn, under the names that they have in an :class:`AudioChunk`."""

    spoken_tokens: Sequence[int]
    rows: Floats | None
    are_spoken: Sequence[bool]


class ToldTokens:
    """Facts about tokens that wait for a chunk to go with."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._rows: list[Floats] = []
        self._are_spoken: list[bool] = []

    def add(self, tokens: Sequence[int], rows: Floats | None, are_spoken: Sequence[bool]) -> None:
        """Take facts about more tokens."""
        self._tokens += tokens
        if rows is not None:
            self._rows.append(rows)
            self._are_spoken += are_spoken

    def take(self) -> Told:
        """Tell of all that have come since the last call."""
        told = Told(self._tokens, np.concatenate(self._rows) if self._rows else None, self._are_spoken)
        self._tokens, self._rows, self._are_spoken = [], [], []
        return told
