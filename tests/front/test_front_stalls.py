"""Clients that read nothing, or leave at the wrong moment, and what others hear meanwhile."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from unittest.mock import Mock

import pytest
from websockets.frames import Close, Frame, Opcode

from cosyvoice_front.live import session
from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.voice.records import VoiceRecords
from eventually import eventually
from fake_upstream import tone
from raw_http import ask, begin, connect, read_all, send
from wire_client import asked, audio_in, open_cartesia, open_omni

HANDSHAKE = (
    b"GET /tts/websocket?cartesia_version=2026-03-01 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CONFIG = {"type": "session.config", "response_format": "pcm"}
LIMIT_S = 60.0


@contextmanager
def unread_websocket(front):
    """A websocket of which nothing is read behind the handshake."""
    with connect(front) as connection:
        connection.sendall(HANDSHAKE)
        assert connection.recv(4096).startswith(b"HTTP/1.1 101")
        yield connection


def frame(opcode, data):
    return Frame(opcode, data).serialize(mask=True, extensions=[])


def sockets(front):
    """Of uvicorn: its websockets."""
    return [each for each in front._server.server_state.connections if hasattr(each, "writable")]


def test_client_that_does_not_read_the_end_is_given_up(start_front, upstream):
    front = start_front(stalled_client_timeout_s=0.1, drain_timeout_s=1)
    upstream.chunks = [tone(300)]  # more than the buffers of both sides hold, and nothing comes after it
    with begin(front, response_format="pcm"):
        front.wait_until(lambda: upstream.requests != [] and upstream.active == 0)
        eventually(lambda: front.connections == 0)


def test_client_that_asks_without_reading_is_given_up(start_front):
    front = start_front(stalled_client_timeout_s=0.2, drain_timeout_s=1)
    with connect(front) as connection:
        connection.settimeout(1)
        with suppress(TimeoutError, ConnectionError):
            for _ in range(10_000):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(lambda: front.connections == 0)


def test_speech_goes_on_though_a_websocket_is_being_closed_when_the_front_stops(
    start_front, upstream, monkeypatch
):
    monkeypatch.setattr("fake_text.CHARACTER_S", 0.5)  # more than the buffers of both sides hold
    front = start_front(stalled_client_timeout_s=3)
    upstream.gates = asyncio.Semaphore(0)
    with begin(front, response_format="pcm") as staying, unread_websocket(front) as leaving:
        data = staying.recv(4096)
        leaving.sendall(frame(Opcode.TEXT, json.dumps(asked("One " * 2000)).encode()))
        front.wait_until(lambda: any(not each.writable.is_set() for each in sockets(front)))
        leaving.sendall(frame(Opcode.CLOSE, Close(1000, "").serialize()))
        front.wait_until(lambda: upstream.cancelled == 1)
        front.begin_stop()
        front.wait_until(lambda: not front._server.servers[0].is_serving())
        front.wait(asyncio.sleep(0.3))
        front.do(upstream.gates.release)
        data += read_all(staying)
    assert data.endswith(b"0\r\n\r\n")


def test_text_that_comes_while_its_context_s_error_waits_behind_audio(start_front, upstream, monkeypatch):
    monkeypatch.setattr("fake_text.CHARACTER_S", 1.0)  # more than the buffers of both sides hold
    front = start_front(idle_timeout_s=1)
    with open_cartesia(front) as wire:
        wire.send(asked("Two.", context_id="two", **{"continue": True}))
        wire.until("flush_done")
        wire.send(asked("One " * 240, context_id="one"))
        front.wait_until(lambda: any(not each.writable.is_set() for each in sockets(front)))
        front.wait_until(lambda: front.streams == 1)  # the other has waited for too long
        wire.send(asked("More.", context_id="two", **{"continue": True}))
        messages = wire.until("done", errors=True)
    errors = [each for each in messages if each["type"] == "error"]
    assert errors[0]["status_code"] == 408
    assert {each["context_id"] for each in errors} == {"two"}
    assert messages[-1]["context_id"] == "one"


def test_who_leaves_after_session_close_ends_what_waits(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_omni(front) as wire:
        wire.send(CONFIG)
        for _ in range(3):
            wire.send({"type": "input.text", "text": "One. " + "x" * 1100}, {"type": "input.done"})
        wire.send({"type": "session.close"})
        wire.until("bytes")
        wire.drop()
        front.wait_until(lambda: front.connections == 0)
        eventually(lambda: upstream.active == 0 and front.streams == 0)
    assert len(upstream.requests) == 1


def test_pongs_for_who_reads_nothing_do_not_pile_up(front):
    pings = frame(Opcode.PING, bytes(125)) * 8000
    with unread_websocket(front) as connection:
        for _ in range(20):
            connection.sendall(pings)
        front.wait_until(lambda: any(not each.writable.is_set() for each in sockets(front)))
        [held] = front.do(lambda: [each.transport.get_write_buffer_size() for each in sockets(front)])
    assert held < 1 << 20


def test_last_pong_comes_when_the_client_reads_on(front, monkeypatch):
    monkeypatch.setattr("fake_text.CHARACTER_S", 0.5)  # more than the buffers of both sides hold
    with unread_websocket(front) as connection:
        connection.sendall(frame(Opcode.TEXT, json.dumps(asked("One " * 400)).encode()))
        front.wait_until(lambda: any(not each.writable.is_set() for each in sockets(front)))
        connection.sendall(frame(Opcode.PING, b"first") + frame(Opcode.PING, b"second"))
        connection.settimeout(LIMIT_S)
        data, pong = bytearray(), Frame(Opcode.PONG, b"second").serialize(mask=False, extensions=[])
        while pong not in data[-(1 << 17) :]:
            part = connection.recv(1 << 16)
            assert part, "closed without the pong"
            data += part


def test_encoder_of_an_utterance_too_many_is_closed(front, upstream, monkeypatch):
    from cosyvoice_client.encoders import CodecEncoder

    open_encoders: set[int] = set()
    start, close = CodecEncoder.__init__, CodecEncoder.close

    def started(encoder, *arguments):
        start(encoder, *arguments)
        open_encoders.add(id(encoder))

    def closed(encoder):
        close(encoder)
        open_encoders.discard(id(encoder))

    monkeypatch.setattr(CodecEncoder, "__init__", started)
    monkeypatch.setattr(CodecEncoder, "close", closed)
    monkeypatch.setattr(session, "MAX_CONTEXTS", 1)
    upstream.gates = asyncio.Semaphore(0)
    with open_omni(front) as wire:
        wire.send({**CONFIG, "response_format": "opus"})
        wire.send({"type": "input.text", "text": "One. Two."}, {"type": "input.done"})
        wire.send({"type": "input.text", "text": "Three."})
        assert wire.error()["status_code"] == 429
    eventually(lambda: not open_encoders)


@contextmanager
def held_lock(voices):
    """Another front is changing the voices, and has been stopped."""
    (voices / "uploads").mkdir()
    with open(voices / "uploads" / "lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def waiting(monkeypatch):
    """``waiting.acquire()`` returns once for each thread that begins to wait for the voices."""
    waiting, locked = threading.Semaphore(0), VoiceRecords.locked
    monkeypatch.setattr(VoiceRecords, "locked", lambda records: (waiting.release(), locked(records))[1])
    return waiting


def test_speech_goes_on_while_another_front_holds_the_voices(start_front, tmp_path, waiting):
    threads = min(32, (os.cpu_count() or 1) + 4)  # of asyncio.to_thread
    with ThreadPoolExecutor(threads + 1) as clients, held_lock(tmp_path):
        front = start_front(voices_dir=tmp_path)
        for _ in range(threads):
            clients.submit(send, front, "DELETE", "/v1/audio/voices/mine")
        for _ in range(threads):
            assert waiting.acquire(timeout=LIMIT_S)
        assert clients.submit(ask, front, voice="anna").result(LIMIT_S).status == 200


def test_front_stops_while_another_holds_the_voices(start_front, tmp_path, waiting):
    with ThreadPoolExecutor(1) as clients, held_lock(tmp_path):
        front = start_front(voices_dir=tmp_path, drain_timeout_s=1)
        clients.submit(send, front, "DELETE", "/v1/audio/voices/mine")
        assert waiting.acquire(timeout=LIMIT_S)
        front.begin_stop()
        front._thread.join(LIMIT_S)
        assert not front._thread.is_alive()


def test_words_that_nobody_asked_for_are_not_looked_for(front, monkeypatch):
    """It takes 0.1 s of a long text, in which the front answers nobody else."""
    monkeypatch.setattr(WordTimes, "add", Mock(side_effect=AssertionError))
    with open_cartesia(front) as wire:
        wire.send(asked("One two.", add_timestamps=None))
        assert len(audio_in(wire.until("done"))) > 0


@pytest.mark.parametrize("goes_on", [False, True], ids=["all of it came", "it goes on"])
def test_text_is_handed_on_though_the_listener_pauses(start_front, upstream, goes_on):
    """The server ends a text when nothing comes and nothing is spoken for a while."""
    front = start_front(idle_timeout_s=0.1)
    upstream.gates = asyncio.Semaphore(0)

    def say(text, more):
        wire.send(asked(text, add_timestamps=False, **{"continue": more}))

    with open_cartesia(front) as wire:
        say("word " * 1040, goes_on)  # a little more than is handed on ahead of what was spoken
        wire.until("chunk")
        [speech] = upstream.texts
        while goes_on and len(speech.pushed) < 4:
            say("word ", True)
            front.wait(asyncio.sleep(0.02))
        say("", False)
        front.wait_until(lambda: speech.is_complete)
        front.do(lambda: [upstream.gates.release() for _ in range(100)])
        wire.until("done")
    assert len(speech.pushed) > 4
