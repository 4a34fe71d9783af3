"""Cartesia's websocket: contexts side by side, audio in base64, and when each word is heard."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.websockets import WebSocket

from cosyvoice_client.words import TimedWord
from cosyvoice_front import request_id
from cosyvoice_front.errors import ApiError, invalid
from cosyvoice_front.front import Front
from cosyvoice_front.live.context import Context
from cosyvoice_front.live.happenings import Audio, Cancelled, Failed, Finished, Flushed, Happening, Words
from cosyvoice_front.live.manner import Manner
from cosyvoice_front.live.session import Session
from cosyvoice_front.shown import shown
from cosyvoice_front.wires.cartesia_messages import Input, Opening, socket_error, version_of
from cosyvoice_front.wires.messages import read, read_text
from cosyvoice_front.wires.serve import BUFFER_DELAY_MS, MAX_MESSAGE_BYTES, NORMAL, ClosedError
from cosyvoice_front.wires.socket import Socket

REMEMBERED = 256
"""Contexts of a socket that have ended and are still known by name: late messages are nothing new."""


@dataclass
class Progress:
    """
    Attributes:
        opening: what began the context.
        flushes: how many have been passed.
        at: when the last audio was sent, or the first text came.
    """

    opening: Opening
    flushes: int = 0
    at: float = field(default_factory=time.monotonic)


class Cartesia:
    """The protocol on one socket.

    Raises:
        ApiError: the client wants a version that is not served.
    """

    def __init__(self, websocket: WebSocket, front: Front, owner: str, socket: Socket) -> None:
        version_of(websocket)
        self._front = front
        self._owner = owner
        self._socket = socket
        self._progress: dict[str, Progress] = {}
        self._ended: deque[str] = deque(maxlen=REMEMBERED)
        self.session = Session(front, owner, self._tell)

    @property
    def patience_s(self) -> float:
        return self._front.settings.front.idle_socket_timeout_s

    def most_bytes(self, _message: str | bytes) -> int:
        return MAX_MESSAGE_BYTES

    async def take(self, message: str | bytes) -> None:
        content = read_text(message)
        name = content.get("context_id")
        try:
            await self._take(content)
        except ApiError as error:
            name = name if isinstance(name, str) else None
            if name is None or self._has_ended(name) or not await self.session.fail(name, error):
                await self._send(socket_error(error, name, _request_id()))

    async def refuse(self, error: ApiError) -> None:
        await self._send(socket_error(error, None, _request_id()))

    async def late(self) -> ClosedError:
        """No error: clients that keep sockets open connect anew when one is closed."""
        return ClosedError(NORMAL, "idle")

    async def _take(self, content: dict[str, Any]) -> None:
        given = read(Input, content)
        name = given.context_id or str(uuid.uuid4())
        if given.cancel:
            await self._cancel(name)
        elif self._has_ended(name):
            self._take_late(given, name)
        else:
            context = self.session.get(name) or await self._open(name, content)
            self._check_same(name, content)
            self._speak(context, given, self._progress[name].opening)

    async def _cancel(self, name: str) -> None:
        if not await self.session.cancel(name) and name not in self._ended:
            raise invalid("context_id", f"context_id: {shown(name)}: this socket has no such context.")

    def _has_ended(self, name: str) -> bool:
        """Whether a context takes no more text. What it has had is spoken, whatever comes too late."""
        context = self.session.get(name)
        return name in self._ended or (context is not None and context.is_ended)

    def _take_late(self, given: Input, name: str) -> None:
        if given.transcript.strip():
            message = f"context_id: {shown(name)}: the context has ended; take another context_id."
            raise invalid("context_id", message, "context_ended")

    async def _open(self, name: str, content: dict[str, Any]) -> Context:
        opening = read(Opening, content)
        opening.check_model(self._front.settings.front)
        voice = await self._front.voices.server_name(opening.voice.id, self._owner)
        request, delay_ms = opening.request(voice), opening.max_buffer_delay_ms
        reading = await self._front.reading(opening, request, self._owner)
        words = opening.add_timestamps or None
        request = replace(request, words=words, verify=opening.verify, **reading)
        context = self.session.open(
            name,
            Manner(
                request,
                opening.output_format.encoding,
                opening.output_format.encoder(opening.target_lufs),
                (BUFFER_DELAY_MS if delay_ms is None else delay_ms) / 1000,
            ),
        )
        self._progress[name] = Progress(opening)
        return context

    def _check_same(self, name: str, content: dict[str, Any]) -> None:
        """Raise an ApiError where the message wants its context to speak otherwise than it does."""
        before = self._progress[name].opening
        now = read(Opening, before.model_dump() | content)
        for field_name in Opening.model_fields:
            if getattr(before, field_name) != (value := getattr(now, field_name)):
                raise invalid(field_name, f"{field_name}: {shown(value)}: it can't change within a context.")

    def _speak(self, context: Context, given: Input, opening: Opening) -> None:
        self.session.push(context, given.transcript)
        if not given.continue_:
            context.end()
        elif given.flush or opening.max_buffer_delay_ms == 0:
            context.flush()

    async def _tell(self, name: str, happening: Happening) -> None:
        if isinstance(happening, Finished | Failed | Cancelled):
            self._ended.append(name)
            self._progress.pop(name, None)
        await self._send(self._message(name, happening))

    def _message(self, name: str, happening: Happening) -> dict[str, Any]:
        if isinstance(happening, Failed):
            return socket_error(happening.error, name, _request_id())
        content = {"context_id": name, "done": False, "status_code": 206}
        if isinstance(happening, Audio):
            return {"type": "chunk", "data": _base64(happening.data), **content, **self._chunk(name)}
        if isinstance(happening, Words):
            times = _times(happening.words)
            return {"type": "timestamps", **content, "word_timestamps": times, "by": happening.by}
        if isinstance(happening, Flushed):
            self._progress[name].flushes += 1
            number = self._progress[name].flushes
            return {"type": "flush_done", **content, "flush_done": True, "flush_id": number}
        found = happening.found if isinstance(happening, Finished) else {}
        return {"type": "done", **content, "done": True, "status_code": 200, **found}

    def _chunk(self, name: str) -> dict[str, Any]:
        """``step_time``: milliseconds since the chunk before."""
        progress, now = self._progress[name], time.monotonic()
        took_ms, progress.at = 1000 * (now - progress.at), now
        return {"step_time": round(took_ms, 3), "flush_id": progress.flushes + 1}

    async def _send(self, content: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(content, separators=(",", ":")))


def _times(words: Sequence[TimedWord]) -> dict[str, Any]:
    return {
        "words": [word.text for word in words],
        "start": [round(word.start_s, 3) for word in words],
        "end": [round(word.end_s, 3) for word in words],
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _request_id() -> str:
    return request_id.current.get()
