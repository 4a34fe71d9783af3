"""Requests that no well-behaved client would send."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from typing import Any, NamedTuple

from front_server import TIMEOUT_S, RunningFront

ASKED = {"model": "tts-1", "voice": "alloy", "input": "Hello there."}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """What is wrong, with exactly the fields of OpenAI's errors."""
        content = json.loads(self.body)
        assert content.keys() == {"error"}
        assert content["error"].keys() == {"message", "type", "param", "code"}
        return content["error"]


def send(
    front: RunningFront,
    method: str = "POST",
    path: str = "/v1/audio/speech",
    body: bytes = b"",
    **headers: str,
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=TIMEOUT_S)
    try:
        # Refused before it was sent whole: the answer is there.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        lower = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, lower, answer.read())
    finally:
        connection.close()


def ask(front: RunningFront, key: str | None = None, **fields: Any) -> Answer:
    """A speech, with fields that openai's client wouldn't send; None leaves a field out."""
    content = {name: value for name, value in {**ASKED, **fields}.items() if value is not None}
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    return send(front, body=json.dumps(content).encode(), **headers)


def connect(front: RunningFront) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=TIMEOUT_S)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def begin(front: RunningFront, key: str | None = None, **fields: Any) -> socket.socket:
    """A request on a connection of its own, of which nothing has been read."""
    body = json.dumps({**ASKED, **fields}).encode()
    connection = connect(front)
    connection.sendall(
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"%bContent-Length: %d\r\n\r\n%b" % (_authorization(key), len(body), body)
    )
    return connection


def _authorization(key: str | None) -> bytes:
    return b"" if key is None else f"Authorization: Bearer {key}\r\n".encode()
