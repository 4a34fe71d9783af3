"""Server-sent events of a speech."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cosyvoice_front.errors import ApiError

MEDIA_TYPE = "text/event-stream"


def delta(audio: bytes, spoken_characters: int | None = None) -> bytes:
    """The next bytes of the file.

    Args:
        spoken_characters: of the text, which the bytes before have spoken, where a segment of it has ended.
    """
    content: dict[str, Any] = {"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()}
    return event(content | _reached(spoken_characters))


def done(
    usage: dict[str, int],
    finish_reason: str,
    turns: Sequence[tuple[str, float]] = (),
    verification: Mapping[str, Any] | None = None,
    spoken_characters: int | None = None,
) -> bytes:
    """The end. ``finish_reason`` is ours: stop, length, repetition or incomplete.

    Args:
        turns: the voice of each turn, and the second of the audio at which it ends.
        verification: of a request that asks for it.
        spoken_characters: of the text.
    """
    content: dict[str, Any] = {"type": "speech.audio.done", "usage": usage, "finish_reason": finish_reason}
    content |= _reached(spoken_characters)
    told = [{"voice": voice, "end_s": round(end_s, 3)} for voice, end_s in turns]
    found = {} if verification is None else {"verification": verification}
    return event(content | ({"turns": told} if told else {}) | found)


def spoken_words(words: Sequence[dict[str, Any]], by: str) -> bytes:
    """Words that have been spoken, when, and how that is known: by ``attention`` or by ``estimate``."""
    return event({"type": "speech.audio.words", "by": by, "words": words})


def failure(error: ApiError) -> bytes:
    """The end, when audio has gone out already."""
    return event({"type": "speech.audio.error", **error.body()})


def usage(characters: int, spoken: int) -> dict[str, int]:
    """In tokens: of the text its characters, as only the server has the tokenizer; of the speech its own."""
    return {"input_tokens": characters, "output_tokens": spoken, "total_tokens": characters + spoken}


def _reached(spoken_characters: int | None) -> dict[str, int]:
    return {} if spoken_characters is None else {"spoken_characters": spoken_characters}


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"
