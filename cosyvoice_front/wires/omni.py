"""vllm-omni's websocket: utterances one after the other, audio in binary messages, and a cancel."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

from starlette.websockets import WebSocket

from cosyvoice_client import Reference
from cosyvoice_client.words import TimedWord
from cosyvoice_front import request_id
from cosyvoice_front.errors import ApiError, invalid, timed_out
from cosyvoice_front.front import Front
from cosyvoice_front.levelled import make_speech_encoder
from cosyvoice_front.live.happenings import Audio, Cancelled, Failed, Finished, Flushed, Happening, Words
from cosyvoice_front.live.manner import Manner
from cosyvoice_front.live.session import Session
from cosyvoice_front.shown import shown
from cosyvoice_front.wires.messages import read, read_text
from cosyvoice_front.wires.omni_messages import Config, InputText, error_message
from cosyvoice_front.wires.serve import BUFFER_DELAY_MS, MAX_MESSAGE_BYTES, NORMAL, POLICY, ClosedError
from cosyvoice_front.wires.socket import Socket

CONFIG = "session.config"


@dataclass
class Utterance:
    """
    Attributes:
        text: that has come before its first audio.
        note: which part of a long recording it is spoken like.
        is_open: whether more text may come; ``input.done`` ends that.
    """

    index: int
    config: Config
    note: str = ""
    text: str = ""
    started: bool = False
    sent_bytes: int = 0
    messages: int = 0
    is_open: bool = True


class Omni:
    """The protocol on one socket."""

    def __init__(self, _websocket: WebSocket, front: Front, owner: str, socket: Socket) -> None:
        self._front = front
        self._owner = owner
        self._socket = socket
        self._config: Config | None = None
        self._voice: str | None = None
        self._reference: Reference | None = None
        self._reading: dict[str, Any] = {}
        self._utterances: dict[str, Utterance] = {}
        self._open: Utterance | None = None
        self._count = 0
        self.session = Session(front, owner, self._tell, in_turn=True)

    @property
    def patience_s(self) -> float:
        settings = self._front.settings.front
        return settings.arrival_timeout_s if self._config is None else settings.idle_socket_timeout_s

    def most_bytes(self, message: str | bytes) -> int:
        """A configuration may bring a recording, and is as large as the body of a request may be."""
        settings = self._front.settings.front
        is_config = isinstance(message, str) and CONFIG in message[:200]
        return settings.max_request_mib << 20 if is_config else MAX_MESSAGE_BYTES

    async def take(self, message: str | bytes) -> None:
        content = read_text(message)
        kind = content.get("type")
        if kind == CONFIG:
            await self._configure(content)
        elif self._config is None:
            raise invalid("type", f"type: {shown(kind)}: the first message is {CONFIG}.")
        elif kind == "input.text":
            await self._push(self._config, read(InputText, content).text)
        elif kind == "input.done":
            await self._done(self._config)
        elif kind == "input.cancel":
            await self._cancel()
        elif kind == "session.close":
            await self._socket.heard(self.session.finish())
            raise ClosedError(NORMAL, "as asked")
        else:
            raise invalid("type", f"type: {shown(kind)}: there is no such message.")

    async def refuse(self, error: ApiError) -> None:
        await self._send(error_message(error, request_id.current.get()))
        if self._config is None:
            raise ClosedError(POLICY, "without a configuration")

    async def late(self) -> ClosedError:
        asked = CONFIG if self._config is None else "message"
        error = timed_out(f"No {asked} came for {self.patience_s:g} s.")
        await self._send(error_message(error, request_id.current.get()))
        return ClosedError(POLICY, "no message came in time")

    async def _configure(self, content: dict[str, Any]) -> None:
        if self._open is not None:
            raise invalid("type", f"type: {CONFIG}: an utterance is open; send input.done before.")
        config = read(Config, content)
        config.check(self._front.settings.front)
        reference = await self._front.reference(config.ref_audio, config.ref_text or "")
        voice = None if reference else await self._front.voices.server_name(config.voice, self._owner)
        request = config.request(voice, reference)
        self._reading = await self._front.reading(config, request, self._owner)
        self._config, self._voice, self._reference = config, voice, reference

    async def _push(self, config: Config, text: str) -> None:
        utterance = self._open or self._begin(config)
        name = str(utterance.index)
        context = self.session.get(name)
        if context is None:
            return  # it has failed, which the client has been told
        if not utterance.started:
            utterance.text += text
        try:
            self.session.push(context, text)
        except ApiError as error:
            await self.session.fail(name, error)

    def _begin(self, config: Config) -> Utterance:
        delay_ms = config.max_buffer_delay_ms
        manner = Manner(
            replace(config.request(self._voice, self._reference), **self._reading),
            config.response_format,
            make_speech_encoder(config.response_format, config.rate, config.target_lufs),
            (BUFFER_DELAY_MS if delay_ms is None else delay_ms) / 1000,
        )
        utterance = Utterance(self._count, config, self._reference.note if self._reference else "")
        try:
            self.session.open(str(utterance.index), manner)
        except ApiError:
            manner.encoder.close()
            raise
        self._count += 1
        self._open = self._utterances[str(utterance.index)] = utterance
        return utterance

    async def _done(self, config: Config) -> None:
        utterance = self._open
        if utterance is None:
            await self._send(_session_done(Utterance(self._count, config)))
            self._count += 1
            return
        self._open = None
        utterance.is_open = False
        if (context := self.session.get(str(utterance.index))) is not None:
            context.end()
        else:
            await self._close(utterance)

    async def _cancel(self) -> None:
        """End everything that is spoken or waits; what has ended already needs no answer but this."""
        names = self.session.names
        for name in reversed(names):
            await self.session.cancel(name)
        if self._open is not None:
            self._utterances.pop(str(self._open.index), None)
            self._open = None
        if not names:
            await self._send({"type": "audio.cancelled", "utterance_index": None})

    async def _tell(self, name: str, happening: Happening) -> None:
        if isinstance(happening, Cancelled):
            self._utterances.pop(name, None)
            await self._send({"type": "audio.cancelled", "utterance_index": int(name)})
            return
        utterance = self._utterances[name]
        if isinstance(happening, Audio):
            await self._start(utterance)
            await self._send_audio(utterance, happening.data)
        elif isinstance(happening, Words):
            words = [_timed(word) for word in happening.words]
            await self._send(_chunk(utterance, b"", words) | {"by": happening.by})
        elif not isinstance(happening, Flushed):
            await self._end(utterance, happening)

    async def _end(self, utterance: Utterance, happening: Finished | Failed) -> None:
        failed, found = isinstance(happening, Failed), {}
        if isinstance(happening, Finished):
            found = happening.found
        else:
            message = error_message(happening.error, request_id.current.get())
            await self._send(message | {"partial_audio": utterance.sent_bytes > 0})
        await self._start(utterance)
        await self._send(
            _place(utterance, "audio.done") | {"total_bytes": utterance.sent_bytes, "error": failed} | found
        )
        if not utterance.is_open:
            await self._close(utterance)

    async def _close(self, utterance: Utterance) -> None:
        del self._utterances[str(utterance.index)]
        await self._send(_session_done(utterance))

    async def _start(self, utterance: Utterance) -> None:
        if utterance.started:
            return
        utterance.started = True
        config = utterance.config
        audio: dict[str, Any] = {
            "format": config.response_format,
            "sample_rate": config.rate,
            "channels": 1,
        }
        if config.word_timestamps:
            audio["word_timestamps"] = True
        if utterance.note:
            audio["reference_note"] = utterance.note
        await self._send(_place(utterance, "audio.start") | {"sentence_text": utterance.text, **audio})

    async def _send_audio(self, utterance: Utterance, data: bytes) -> None:
        utterance.sent_bytes += len(data)
        if utterance.config.word_timestamps:
            await self._send(_chunk(utterance, data, None))
        else:
            await self._socket.send(data)

    async def _send(self, content: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(content, separators=(",", ":")))


def _place(utterance: Utterance, kind: str) -> dict[str, Any]:
    return {"type": kind, "utterance_index": utterance.index, "sentence_index": 0}


def _chunk(utterance: Utterance, data: bytes, words: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Audio as JSON, in place of binary messages, where words are timed."""
    utterance.messages += 1
    return _place(utterance, "audio.chunk") | {
        "chunk_id": utterance.messages - 1,
        "sample_rate": utterance.config.rate,
        "channels": 1,
        "audio_b64": base64.b64encode(data).decode(),
        "timestamps": words,
    }


def _timed(word: TimedWord) -> dict[str, Any]:
    return {"word": word.text, "start_ms": round(1000 * word.start_s), "end_ms": round(1000 * word.end_s)}


def _session_done(utterance: Utterance) -> dict[str, Any]:
    sentences = int(utterance.started)
    return {"type": "session.done", "utterance_index": utterance.index, "total_sentences": sentences}
