"""Messages of vllm-omni's speech websocket (vllm-omni, ``docs/serving/speech_api.md``)."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from pydantic import Field

from cosyvoice_client import Reference, SpeechRequest
from cosyvoice_client.encoders import RATES, Format, usual_rate
from cosyvoice_front.errors import ApiError, invalid, model_not_found
from cosyvoice_front.levelled import TargetLufs
from cosyvoice_front.speech import SPEEDS, Language, for_its_sound
from cosyvoice_front.text_fields import TextFields
from cosyvoice_front.turns import MAX_INSTRUCTIONS
from cosyvoice_front.wires.messages import Message
from cosyvoice_runtime.engine.utterance.verdict import Verify
from cosyvoice_runtime.settings import FrontSettings


class Config(Message, TextFields):
    """``session.config``: how to speak from here on.

    Of vllm-omni's fields, ``stream_audio`` and ``split_granularity`` say nothing here: audio always streams,
    and an utterance is always one piece.
    """

    model: str | None = None
    voice: str | None = None
    language: Language = None
    instructions: str | None = Field(None, max_length=MAX_INSTRUCTIONS)
    response_format: Format = "wav"
    speed: float | None = Field(1.0, ge=SPEEDS[0], le=SPEEDS[1])
    seed: int | None = Field(None, ge=0, lt=2**63)
    sample_rate: int | None = None
    target_lufs: TargetLufs = None
    ref_audio: str | None = None
    ref_text: str | None = None
    word_timestamps: bool = False
    verify: Verify | None = None
    split_granularity: Literal["none", "sentence", "clause"] = "none"
    stream_audio: bool = True
    max_buffer_delay_ms: int | None = Field(None, ge=0, le=60_000)

    @property
    def rate(self) -> int:
        """Samples per second of the audio."""
        return self.sample_rate or usual_rate(self.response_format)

    def check(self, settings: FrontSettings) -> None:
        """Raise an ApiError where fields don't fit each other, or this server."""
        if self.model is not None and self.model not in settings.models:
            raise model_not_found(self.model)
        rates = RATES[self.response_format]
        if self.rate not in rates:
            listed = ", ".join(map(str, rates))
            message = f"sample_rate: {self.rate} is none of {listed} for {self.response_format}."
            raise invalid("sample_rate", message)
        if self.ref_text is not None and self.ref_audio is None:
            raise invalid("ref_text", "ref_text: it goes with ref_audio.")
        if self.word_timestamps and self.response_format != "pcm":
            message = f"word_timestamps: they go with response_format pcm, not {self.response_format}."
            raise invalid("word_timestamps", message)

    def request(self, voice: str | None, reference: Reference | None) -> SpeechRequest:
        return SpeechRequest(
            "",
            reference,
            voice=voice,
            instruct_text=self.instructions or None,
            language=self.language,
            cross_lingual=for_its_sound(reference, self.instructions),
            speed=self.speed or 1.0,
            seed=secrets.randbits(63) if self.seed is None else self.seed,
            words=self.word_timestamps or None,
            verify=self.verify,
        )


class InputText(Message):
    text: str


def error_message(error: ApiError, request_id: str) -> dict[str, Any]:
    """vllm-omni's has a message alone; the rest is OpenAI's."""
    return {
        "type": "error",
        "message": str(error),
        "code": error.code,
        "param": error.param,
        "status_code": error.status,
        "request_id": request_id,
        **error.retry(),
    }
