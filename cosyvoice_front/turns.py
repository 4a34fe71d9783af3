"""Turns of several speakers, as the body of a request has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cosyvoice_front.errors import ApiError, invalid
from cosyvoice_runtime.engine.utterance.turn import TURNS, place

MAX_INSTRUCTIONS = 4096
_OF_ONE_TEXT = ("input", "voice", "ref_audio", "ref_text")
"""Fields of a request that turns take the place of."""


class VoiceId(BaseModel):
    """``{"id": "..."}``, OpenAI's way to name a voice that somebody has made."""

    model_config = ConfigDict(strict=True)

    id: str


class TurnBody(BaseModel):
    """A part of a conversation, which one speaker says. Fields that are not known here are ignored."""

    model_config = ConfigDict(strict=True)

    voice: str | VoiceId
    text: str
    instructions: str | None = Field(None, max_length=MAX_INSTRUCTIONS)

    @property
    def voice_name(self) -> str:
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice

    def for_server(self) -> dict[str, str]:
        told = {"voice": self.voice_name, "text": self.text}
        return told | ({"instructions": self.instructions} if self.instructions else {})


def with_input(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a body; one with turns gets an empty input, and may have empty fields of one text, as
    packages of clients ask for them.

    Raises:
        ApiError: it has turns and one text, too.
    """
    if TURNS not in given:
        return given
    for field in _OF_ONE_TEXT:
        if given.get(field, "") != "":
            raise invalid(field, f"{field}: it can't be combined with turns.")
    return {**{name: value for name, value in given.items() if name not in _OF_ONE_TEXT}, "input": ""}


def at_turn(number: int, error: ApiError) -> ApiError:
    """An error of a voice, as that of the turn of this number; voices that are away are no turn's fault."""
    if error.param is None:
        return error
    param = f"{place(number)}.voice"
    return ApiError(error.status, f"{param}: {error}", param=param, code=error.code)
