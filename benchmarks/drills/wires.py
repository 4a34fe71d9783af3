"""Texts that go to a front in pieces, over either of its websockets."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from drills.front import Front
from drills.listeners import SEED, TIMEOUT_S, Samples

PIECES = ("Is 3", ".1? G", "o.")
LONGEST_WAIT_MS = 5000
"""For more of a segment: as long as a socket can be told, for a busy machine sends pieces late."""
CARTESIA = "/tts/websocket?cartesia_version=2026-03-01"
OMNI = "/v1/audio/speech/stream"
Message = dict[str, Any] | bytes
Say = Callable[..., Samples]


def cartesia(front: Front, pieces: Sequence[str] = PIECES) -> Samples:
    """All samples of a context whose text comes in these pieces."""
    return _samples_of(cartesia_messages(front, pieces))


def timed_words(
    front: Front, pieces: Sequence[str] = PIECES
) -> tuple[Samples, list[tuple[str, float, float]]]:
    """All samples of a context, and its words with the seconds at which each begins and ends."""
    messages = cartesia_messages(front, pieces, add_timestamps=True)
    times = [each["word_timestamps"] for each in messages if each["type"] == "timestamps"]
    words = [word for each in times for word in zip(each["words"], each["start"], each["end"], strict=True)]
    return _samples_of(messages), words


def cartesia_messages(front: Front, pieces: Sequence[str], **fields: object) -> list[dict[str, Any]]:
    """All that a context is told whose text comes in these pieces."""
    context = {
        "context_id": "one",
        "model_id": "sonic-3",
        "voice": {"mode": "id", "id": "default"},
        "language": "en",
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
        "max_buffer_delay_ms": LONGEST_WAIT_MS,
        "seed": SEED,
        **fields,
    }
    with _socket(front, CARTESIA) as socket:
        for piece in pieces:
            socket.send(json.dumps({**context, "transcript": piece, "continue": True}))
        socket.send(json.dumps({**context, "transcript": "", "continue": False}))
        return [each for each in _until(socket, "done") if isinstance(each, dict)]


def omni(front: Front, pieces: Sequence[str] = PIECES) -> Samples:
    """All samples of an utterance whose text comes in these pieces."""
    session = {"response_format": "pcm", "seed": SEED, "max_buffer_delay_ms": LONGEST_WAIT_MS}
    with _socket(front, OMNI) as socket:
        socket.send(json.dumps({"type": "session.config", "voice": "default", **session}))
        for piece in pieces:
            socket.send(json.dumps({"type": "input.text", "text": piece}))
        socket.send(json.dumps({"type": "input.done"}))
        messages = _until(socket, "audio.done")
    return np.frombuffer(b"".join(each for each in messages if isinstance(each, bytes)), "<i2")


class ToldError(Exception):
    """An error that the front has sent over a socket.

    Attributes:
        status: as of HTTP.
        heard: whether audio had come before.
        again_s: seconds after which the front says to come back, where nothing was heard; None otherwise.
    """

    def __init__(self, told: dict[str, Any], heard: bool) -> None:
        super().__init__(str(told))
        self.status: int = told["status_code"]
        self.heard = heard
        refused = "retry_after_ms" in told and not heard
        self.again_s = told["retry_after_ms"] / 1000 if refused else None


SOCKETS: dict[str, Say] = {"cartesia": cartesia, "omni": omni}


@contextmanager
def _socket(front: Front, path: str) -> Iterator[ClientConnection]:
    url = f"ws://127.0.0.1:{front.port}{path}"
    with connect(url, open_timeout=TIMEOUT_S, proxy=None, max_size=None) as connection:
        yield connection


def _until(socket: ClientConnection, kind: str) -> list[Message]:
    """Messages up to the first of a type; a ToldError tells that the front has sent an error."""
    found: list[Message] = []
    while True:
        message = socket.recv(TIMEOUT_S)
        told: Message = json.loads(message) if isinstance(message, str) else message
        found.append(told)
        if isinstance(told, dict) and told["type"] == "error":
            raise ToldError(told, any(map(_is_audio, found)))
        if isinstance(told, dict) and told["type"] == kind:
            return found


def _is_audio(message: Message) -> bool:
    return isinstance(message, bytes) or message["type"] == "chunk"


def _samples_of(messages: Sequence[dict[str, Any]]) -> Samples:
    """The samples of Cartesia's chunks."""
    data = b"".join(base64.b64decode(each["data"]) for each in messages if each["type"] == "chunk")
    return np.frombuffer(data, "<i2")
