"""Websockets, message by message."""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from websockets.sync.client import ClientConnection, connect

from front_server import TIMEOUT_S, RunningFront

VERSION = "2026-03-01"
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
OPENING = {
    "context_id": "one",
    "model_id": "sonic-3",
    "transcript": "Hello there.",
    "voice": {"mode": "id", "id": "default"},
    "language": "en",
    "output_format": FORMAT,
    "add_timestamps": True,
    "max_buffer_delay_ms": 0,
}


class WireClient:
    """One socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, *messages: dict[str, Any] | str | bytes) -> None:
        for message in messages:
            self.connection.send(json.dumps(message) if isinstance(message, dict) else message)

    def receive(self) -> dict[str, Any] | bytes:
        message = self.connection.recv(TIMEOUT_S)
        return json.loads(message) if isinstance(message, str) else message

    def until(self, kind: str, count: int = 1, errors: bool = False) -> list[Any]:
        """Messages up to the ``count``-th of a type.

        Args:
            errors: may be among them; what nobody expects would be waited past to the time limit.
        """
        found: list[Any] = []
        while count:
            found.append(self.receive())
            said = found[-1]["type"] if isinstance(found[-1], dict) else "bytes"
            assert errors or kind == "error" or said != "error", found[-1]
            count -= said == kind
        return found

    def error(self) -> dict[str, Any]:
        return self.until("error")[-1]

    def drop(self) -> None:
        """End the connection without a word: the other side sees 1006."""
        raw = self.connection.socket
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.shutdown(socket.SHUT_RDWR)
        raw.close()


@contextmanager
def open_wire(
    front: RunningFront, path: str, headers: dict[str, str] | None = None, **options: Any
) -> Iterator[WireClient]:
    url = f"ws://127.0.0.1:{front.port}{path}"
    options = {"open_timeout": TIMEOUT_S, "proxy": None, "max_size": None} | options
    with connect(url, additional_headers=headers, **options) as connection:
        yield WireClient(connection)


def open_cartesia(front: RunningFront, query: str = "", **headers: str) -> Any:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"/tts/websocket?cartesia_version={VERSION}{query}"
    return open_wire(front, path, given)


def open_omni(front: RunningFront, **headers: str) -> Any:
    return open_wire(front, "/v1/audio/speech/stream", headers)


def asked(transcript: str = "Hello there.", **fields: Any) -> dict[str, Any]:
    """A message to a context of Cartesia's; None leaves a field out."""
    content = {**OPENING, "transcript": transcript, **fields}
    return {name: value for name, value in content.items() if value is not None}


def audio_in(messages: list[Any]) -> npt.NDArray[np.float32]:
    """The samples of Cartesia's chunks."""
    data = b"".join(base64.b64decode(each["data"]) for each in messages if each["type"] == "chunk")
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768


def words_in(messages: list[Any]) -> list[tuple[str, float, float]]:
    times = [each["word_timestamps"] for each in messages if each["type"] == "timestamps"]
    return [word for each in times for word in zip(each["words"], each["start"], each["end"], strict=True)]
