"""Server-sent events of a speech."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cosyvoice_front.errors import ApiError

MEDIA_TYPE = "text/event-stream"


def delta(audio: bytes) -> bytes:
    """The next bytes of the file."""
    return event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def done(
    usage: dict[str, int],
    finish_reason: str,
    turns: Sequence[tuple[str, float]] = (),
    verification: Mapping[str, Any] | None = None,
) -> bytes:
    """The end. ``finish_reason`` is ours: stop, length, repetition or incomplete.

    Args:
        turns: the voice of each turn, and the second of the audio at which it ends.
        verification: of a request that asks for it.
    """
    content = {"type": "speech.audio.done", "usage": usage, "finish_reason": finish_reason}
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


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"
