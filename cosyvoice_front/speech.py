"""The body of ``POST /v1/audio/speech``."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from cosyvoice_client import Reference, SpeechRequest
from cosyvoice_client.chinese_words import WordUnit
from cosyvoice_client.encoders import RATES, Format, usual_rate
from cosyvoice_front.errors import ApiError, invalid, model_not_found, of_validation
from cosyvoice_front.json_object import read_object
from cosyvoice_front.levelled import TargetLufs
from cosyvoice_front.text_fields import TextFields
from cosyvoice_front.turns import MAX_INSTRUCTIONS, TurnBody, VoiceId, with_input
from cosyvoice_runtime.audio.silence import TrimSilence
from cosyvoice_runtime.engine.utterance.turn import LONGEST_TURN_PAUSE_S, MOST_TURNS, TURNS, place
from cosyvoice_runtime.engine.utterance.verdict import Verify
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.language_names import language_tag
from cosyvoice_runtime.settings import FrontSettings
from cosyvoice_runtime.settings.front import DEFAULT_VOICE
from cosyvoice_runtime.speakable import without_controls
from cosyvoice_runtime.text.markup.pauses import LONGEST_S
from cosyvoice_runtime.text.validate import MOST_AT_ONCE

SPEEDS = (0.5, 2.0)
"""Speeds that the vocoder can do; OpenAI's API goes further."""
SEEDS = 2**63


def _language(name: str | None) -> str | None:
    try:
        return None if name is None else language_tag(name)
    except InvalidInput as error:
        raise PydanticCustomError("language", "{limit}", {"limit": error.limit}) from None


Language = Annotated[str | None, AfterValidator(_language)]
"""A language by its tag or its name, brought to its tag."""


class SpeechBody(TextFields):
    """A request to speak. Fields that are not known here are ignored, as clients send their own."""

    model_config = ConfigDict(strict=True)

    model: str
    input: str
    voice: str | VoiceId | None = None
    instructions: str | None = Field(None, max_length=MAX_INSTRUCTIONS)
    response_format: Format = "mp3"
    speed: float = 1.0
    stream_format: Literal["audio", "sse"] | None = None
    stream: Any = None
    language: Language = None
    seed: int | None = Field(None, ge=0, lt=SEEDS)
    sample_rate: int | None = None
    target_lufs: TargetLufs = None
    trim_silence: TrimSilence | None = None
    ref_audio: str | None = None
    ref_text: str | None = None
    turns: list[TurnBody] | None = Field(None, min_length=1, max_length=MOST_TURNS)
    turn_pause_s: float | None = Field(None, ge=0, le=LONGEST_TURN_PAUSE_S)
    paragraph_pause_s: float | None = Field(None, ge=0, le=LONGEST_S)
    sentence_pause_s: float | None = Field(None, ge=0, le=LONGEST_S)
    start_character: int = Field(0, ge=0)
    word_timestamps: bool = False
    word_unit: WordUnit = "character"
    verify: Verify | None = None

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.spoken_turns]

    @property
    def spoken_turns(self) -> list[tuple[str, str]]:
        """The voice and the text of each turn; an input is one, with an empty voice for a recording."""
        if self.turns:
            return [(turn.voice_name, turn.text) for turn in self.turns]
        return [("" if self.ref_audio else self.voice_name or DEFAULT_VOICE, self.input)]

    @property
    def characters(self) -> int:
        """Of all texts, from the one on at which the speech begins."""
        return sum(map(len, self.texts)) - self.start_character

    @property
    def voice_name(self) -> str | None:
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice

    @property
    def as_events(self) -> bool:
        """Whether the audio goes out in server-sent events.

        ``stream`` says nothing of it: clients of vllm-omni and LocalAI send it and read bare audio, which
        streams whatever it says.
        """
        return self.stream_format == "sse"

    @property
    def rate(self) -> int:
        """Samples per second of the file."""
        return self.sample_rate or usual_rate(self.response_format)

    @property
    def is_measured_whole(self) -> bool:
        """Whether the loudness that it asks for is that of the whole answer, which then leaves at its end."""
        return self.stream is False

    def request(self, voice: str | None, reference: Reference | None) -> SpeechRequest:
        """For the server. One without a seed gets one here, so that the answer can name it."""
        return SpeechRequest(
            self.input,
            reference,
            voice=None if reference else voice,
            instruct_text=self.instructions or None,
            language=self.language,
            cross_lingual=for_its_sound(reference, self.instructions),
            speed=self.speed,
            seed=secrets.randbits(63) if self.seed is None else self.seed,
            trim_silence=self.trim_silence,
            turns=[turn.for_server() for turn in self.turns] if self.turns else None,
            turn_pause_s=self.turn_pause_s,
            words=self.word_timestamps or None,
            verify=self.verify,
            paragraph_pause_s=self.paragraph_pause_s,
            sentence_pause_s=self.sentence_pause_s,
            start_character=self.start_character or None,
        )


def for_its_sound(reference: Reference | None, instructions: str | None) -> bool | None:
    """``cross_lingual`` of a request: whether it brings a recording of which nobody has said the words."""
    wordless = reference is not None and not reference.text.strip()
    return True if wordless and not instructions else None


def read_speech(body: bytes, settings: FrontSettings) -> SpeechBody:
    """Read a request's body; an ApiError names the field at fault."""
    speech = checked(given_fields(body), settings)
    if speech.model not in settings.models:
        raise model_not_found(speech.model)
    return speech


def given_fields(body: bytes) -> dict[str, Any]:
    """The fields of a body that aren't null; an ApiError for one that is no object."""
    return {name: value for name, value in read_object(body, "body").items() if value is not None}


def checked(given: dict[str, Any], settings: FrontSettings) -> SpeechBody:
    """A request with these fields, of whatever model; an ApiError names the field at fault."""
    try:
        speech = SpeechBody.model_validate(with_input(given))
    except ValidationError as error:
        raise of_validation(error) from None
    _check_texts(speech, settings.max_text_characters)
    if not SPEEDS[0] <= speech.speed <= SPEEDS[1]:
        raise invalid("speed", f"speed: {speech.speed:g} is not {SPEEDS[0]:g} to {SPEEDS[1]:g}.")
    _check_rate(speech)
    _check_start(speech)
    if speech.word_timestamps and not speech.as_events:
        raise invalid("word_timestamps", "word_timestamps: it goes with stream_format sse.")
    if speech.turn_pause_s is not None and speech.turns is None:
        raise invalid("turn_pause_s", "turn_pause_s: it goes with turns.")
    if "word_unit" in given and not speech.word_timestamps:
        raise invalid("word_unit", "word_unit: it goes with word_timestamps.")
    if speech.verify == "report" and not speech.as_events:
        raise invalid("verify", "verify: report goes with stream_format sse.")
    if speech.ref_text is not None and speech.ref_audio is None:
        raise invalid("ref_text", "ref_text: it goes with ref_audio.")
    return speech


def _check_texts(speech: SpeechBody, most: int) -> None:
    most = min(most, MOST_AT_ONCE) if speech.turns else most
    for number, text in enumerate(speech.texts):
        check_text(text, most, f"{place(number)}.text" if speech.turns else "input")
    if (characters := sum(map(len, speech.texts))) > most:
        raise _too_long(TURNS, characters, most)
    if speech.target_lufs is not None and speech.is_measured_whole and characters > MOST_AT_ONCE:
        message = (
            f"target_lufs: with stream false for at most {MOST_AT_ONCE} characters, these are {characters}."
        )
        raise invalid("target_lufs", message)


def _check_start(speech: SpeechBody) -> None:
    """Raise an ApiError where the speech is to begin behind its text, or amid what has but a beginning."""
    start = speech.start_character
    if start and speech.turns:
        raise invalid("start_character", f"start_character: it can't be combined with {TURNS}.")
    if start and start >= len(speech.input):
        limit = f"less than the {len(speech.input)} characters of input"
        raise invalid("start_character", f"start_character: {start} is not {limit}.")


def check_text(text: str, most: int, param: str) -> None:
    """Raise an ApiError where there is no text, or too much of it."""
    if not without_controls(text).strip():
        raise invalid(param, f"{param}: there is no text.")
    if len(text) > most:
        raise _too_long(param, len(text), most)


def _too_long(param: str, characters: int, most: int) -> ApiError:
    return invalid(param, f"{param}: {characters} characters, at most {most}.", "string_above_max_length")


def _check_rate(speech: SpeechBody) -> None:
    rates = RATES[speech.response_format]
    if speech.sample_rate is not None and speech.sample_rate not in rates:
        listed = ", ".join(map(str, rates))
        message = f"sample_rate: {speech.sample_rate} is none of {listed} for {speech.response_format}."
        raise invalid("sample_rate", message)
