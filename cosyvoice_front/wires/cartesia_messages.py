"""Requests and answers of Cartesia's API (https://docs.cartesia.ai/api-reference/tts/websocket)."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from starlette.requests import HTTPConnection

from cosyvoice_client import SpeechRequest
from cosyvoice_client.encoders import ANY_RATE, Encoder, WavEncoder
from cosyvoice_front.errors import ApiError, invalid, model_not_found
from cosyvoice_front.levelled import TargetLufs, at_file_rate
from cosyvoice_front.shown import shown
from cosyvoice_front.speech import SPEEDS, Language
from cosyvoice_front.text_fields import TextFields
from cosyvoice_front.wires.messages import Message
from cosyvoice_front.wires.raw_audio import Encoding, make_mp3_encoder, make_raw_encoder
from cosyvoice_runtime.engine.utterance.verdict import Verify
from cosyvoice_runtime.settings import FrontSettings

VERSION_HEADER, VERSION_PARAMETER = "cartesia-version", "cartesia_version"
VERSIONS = ("2025-04-16", "2026-03-01")
MODELS = "sonic"
"""Beginning of the names of Cartesia's own models; here they are names of the only one."""
MOST_DELAY_MS = 5000
TITLES = {
    400: "Invalid request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    408: "Timeout",
    413: "Too large",
    429: "Too many requests",
    503: "Overloaded",
    504: "Timeout",
}


def _rate(rate: int) -> int:
    if rate not in ANY_RATE:
        raise PydanticCustomError("rate", "it is none of {rates}", {"rates": ", ".join(map(str, ANY_RATE))})
    return rate


def _absent(value: object) -> object:
    if value not in (None, False):
        raise PydanticCustomError("unsupported", "this server can't do that")
    return value


Rate = Annotated[int, AfterValidator(_rate)]
Unsupported = Annotated[Any, AfterValidator(_absent)]
"""Fields that a client would miss if they were ignored."""


class Voice(Message):
    mode: Literal["id"] = "id"
    id: str | None = None


class GenerationConfig(Message):
    """``volume`` 1 is what it is anyway."""

    speed: float = Field(1.0, ge=SPEEDS[0], le=SPEEDS[1])
    volume: float = Field(1.0, ge=1.0, le=1.0)
    emotion: Unsupported = None


class RawFormat(Message):
    """The audio of a context."""

    container: Literal["raw"]
    encoding: Encoding
    sample_rate: Rate

    def encoder(self, target_lufs: float | None) -> Encoder:
        return at_file_rate(make_raw_encoder(self.encoding), self.sample_rate, target_lufs)


class WavFormat(Message):
    container: Literal["wav"]
    encoding: Literal["pcm_s16le"]
    sample_rate: Rate

    def encoder(self, target_lufs: float | None) -> Encoder:
        return at_file_rate(WavEncoder(self.sample_rate), self.sample_rate, target_lufs)


class Mp3Format(Message):
    container: Literal["mp3"]
    sample_rate: Rate
    bit_rate: Literal[32_000, 64_000, 96_000, 128_000, 192_000] = 128_000

    def encoder(self, target_lufs: float | None) -> Encoder:
        return at_file_rate(make_mp3_encoder(self.sample_rate, self.bit_rate), self.sample_rate, target_lufs)


class Speaking(Message, TextFields):
    """How to speak, which is one for all of a context."""

    model_id: str
    voice: Voice = Voice()
    language: Language = None
    generation_config: GenerationConfig | None = None
    seed: int | None = Field(None, ge=0, lt=2**63)
    target_lufs: TargetLufs = None
    duration: Unsupported = None
    add_phoneme_timestamps: Unsupported = None
    use_normalized_timestamps: Unsupported = None

    @property
    def speed(self) -> float:
        return self.generation_config.speed if self.generation_config else 1.0

    def request(self, voice: str | None, text: str = "") -> SpeechRequest:
        seed = secrets.randbits(63) if self.seed is None else self.seed
        return SpeechRequest(text, voice=voice, language=self.language, speed=self.speed, seed=seed)

    def check_model(self, settings: FrontSettings) -> None:
        """Raise an ApiError where there is no such model."""
        if self.model_id not in settings.models and not self.model_id.startswith(MODELS):
            raise model_not_found(self.model_id)


class BytesBody(Speaking):
    """The body of ``POST /tts/bytes``."""

    transcript: str
    output_format: Annotated[RawFormat | WavFormat | Mp3Format, Field(discriminator="container")]


class Input(Message):
    """Fields of every message to a context."""

    context_id: str | None = Field(None, min_length=1, max_length=256)
    transcript: str = ""
    continue_: bool = Field(False, alias="continue")
    flush: bool = False
    cancel: bool = False


class Opening(Speaking):
    """Further fields of the first message to a context."""

    output_format: RawFormat
    add_timestamps: bool | None = False
    verify: Verify | None = None
    max_buffer_delay_ms: int | None = Field(None, ge=0, le=MOST_DELAY_MS)


def version_of(call: HTTPConnection) -> str:
    """The version of the API that a client wants; the query counts before the header, as Cartesia has it.

    Raises:
        ApiError: it names none, or one that is not served.
    """
    version = call.query_params.get(VERSION_PARAMETER) or call.headers.get(VERSION_HEADER)
    if version not in VERSIONS:
        listed = " or ".join(VERSIONS)
        raise invalid(
            VERSION_PARAMETER, f"Cartesia-Version: {shown(version)} is not served here: send {listed}."
        )
    return version


def http_error(error: ApiError, request_id: str) -> dict[str, Any]:
    """The body of a refusal (https://docs.cartesia.ai/use-the-api/api-errors)."""
    title = TITLES.get(error.status, "Internal error")
    return {"error_code": error.code, "title": title, "message": str(error), "request_id": request_id}


def socket_error(error: ApiError, context_id: str | None, request_id: str) -> dict[str, Any]:
    """The same as a message, which has the older versions' ``error`` too.

    It is without ``done``: LiveKit's plugin would take it for the end of a speech that went well.
    """
    content = http_error(error, request_id)
    named = {} if context_id is None else {"context_id": context_id}
    text = f"{content['title']}: {content['message']}"
    return {"type": "error", "status_code": error.status, "error": text, **content, **named, **error.retry()}
