"""Who may open a websocket, and how much may come over it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from cosyvoice_client import RefusedError
from cosyvoice_front.command import uvicorn_config
from cosyvoice_front.keys import digest
from cosyvoice_front.live import session
from cosyvoice_front.request_id import set_up_logging
from cosyvoice_front.wires import cartesia
from cosyvoice_runtime.settings import Settings
from fake_text import samples_of
from wire_client import asked, audio_in, open_cartesia, open_omni, open_wire, words_in

KEY = "sk-anna"
PATHS = ["/tts/websocket?cartesia_version=2026-03-01", "/v1/audio/speech/stream"]
CONFIG = {"type": "session.config", "response_format": "pcm"}


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"anna sha256:{digest(KEY)}\nbert sha256:{digest('sk-bert')}\n")
    return path


def status_of(front, path, headers=None, **options):
    """Of the answer to a handshake that is refused."""
    with pytest.raises(InvalidStatus) as caught, open_wire(front, path, headers, **options):
        pass
    return caught.value.response.status_code


@pytest.mark.parametrize("path", PATHS)
def test_key_is_asked_for(start_front, keys_file, path):
    front = start_front(api_keys_file=keys_file)
    assert status_of(front, path) == 401
    assert status_of(front, path, {"X-API-Key": "sk-wrong"}) == 401


@pytest.mark.parametrize("path", PATHS)
def test_key_may_come_in_three_ways(start_front, keys_file, path):
    front = start_front(api_keys_file=keys_file)
    joint = "&" if "?" in path else "?"
    with (
        open_wire(front, path, {"X-API-Key": KEY}),
        open_wire(front, path, {"Authorization": f"Bearer {KEY}"}),
    ):
        pass
    with open_wire(front, f"{path}{joint}api_key={KEY}"):
        pass


def test_key_in_the_query_stays_out_of_the_log(start_front, keys_file, capfd):
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers.clear()
    set_up_logging()
    try:
        front = start_front(api_keys_file=keys_file)
        with open_cartesia(front, f"&api_key={KEY}") as wire:
            wire.send(asked())
            wire.until("done")
        status_of(front, f"{PATHS[0]}&api_key=sk-wrong")
        front.stop()
    finally:
        root.handlers[:], root.level = before
    written = capfd.readouterr().err
    assert "/tts/websocket 101" in written
    assert KEY not in written
    assert "sk-wrong" not in written


@pytest.mark.parametrize("path", PATHS)
def test_page_of_another_site_may_not_call_without_keys(front, path):
    assert status_of(front, path, origin="http://elsewhere.example") == 403
    with open_wire(front, path, origin=front.url):
        pass


def test_page_of_another_site_may_call_with_a_key(start_front, keys_file):
    front = start_front(api_keys_file=keys_file)
    path = f"{PATHS[0]}&api_key={KEY}"
    with open_wire(front, path, origin="http://elsewhere.example"):
        pass


def test_somebody_else_s_voice_does_not_exist(start_front, keys_file, tmp_path):
    from cosyvoice_front.upload import new_upload

    front = start_front(api_keys_file=keys_file)

    class OnlyAnnas:
        """Voices, of which one is anna's."""

        def usable(self, name, owner):
            upload = new_upload("mine", "anna", b"", ref_text="", consent="", public=False)
            return name != "mine" or upload.open_to(owner)

    front.app.state.front.voices.uploads = OnlyAnnas()
    voice = {"mode": "id", "id": "mine"}
    with open_cartesia(front, "&api_key=sk-bert") as wire:
        wire.send(asked(voice=voice))
        error = wire.error()
        assert (error["status_code"], error["error_code"]) == (404, "voice_not_found")
    with open_cartesia(front, f"&api_key={KEY}") as wire:
        wire.send(asked(voice=voice))
        wire.until("done")
    with open_omni(front, Authorization="Bearer sk-bert") as wire:
        wire.send({**CONFIG, "voice": "mine"})
        assert wire.error()["code"] == "voice_not_found"


def test_message_of_the_limit_is_taken_and_a_larger_one_is_not(front, monkeypatch):
    monkeypatch.setattr(cartesia, "MAX_MESSAGE_BYTES", 1024)
    with open_cartesia(front) as wire:
        wire.send("x" * 1024)
        assert wire.error()["status_code"] == 400  # it has been read
        wire.send("x" * 1025)
        error = wire.error()
        assert error["status_code"] == 413
        assert "1 KiB" in error["message"]
        wire.send("ü" * 513)  # in UTF-8
        assert wire.error()["status_code"] == 413
        wire.send(asked())
        wire.until("done")


def test_default_limit_of_a_message(front):
    with open_cartesia(front) as wire:
        wire.send("x" * (128 * 1024 + 1))
        assert "128 KiB" in wire.error()["message"]


def test_message_beyond_a_body_closes_the_socket(start_front):
    front = start_front(max_request_mib=1)
    with open_cartesia(front) as wire:
        # Of a text of so many bytes the head alone: the rest could be under way when the socket is closed.
        wire.connection.socket.sendall(b"\x81\xff" + ((1 << 20) + 1).to_bytes(8, "big") + bytes(4))
        with pytest.raises(ConnectionClosed) as caught:
            wire.receive()
    assert caught.value.rcvd.code == 1009


def test_waiting_text_is_limited_over_all_contexts(front, upstream, monkeypatch):
    monkeypatch.setattr(session, "MAX_WAITING_KIB", 1)
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("Long. " * 100, **{"continue": True}))
        wire.until("chunk")
        wire.send(asked("Long. " * 100, context_id="two", **{"continue": True}))
        error = wire.error()
        assert (error["status_code"], error["context_id"]) == (413, "two")
        assert "1 KiB" in error["message"]
        front.do(lambda: [upstream.gates.release() for _ in range(999)])
        wire.until("flush_done")
        wire.send(asked("Long. " * 100, context_id="three"))
        wire.until("done")


def test_contexts_are_limited(front, upstream, monkeypatch):
    monkeypatch.setattr(session, "MAX_CONTEXTS", 2)
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(*[asked("One. Two.", context_id=name) for name in ("one", "two", "three")])
        error = wire.error()
        assert (error["status_code"], error["context_id"]) == (429, "three")
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        wire.until("done")
        wire.send(asked(context_id="four"))
        wire.until("done")


@pytest.mark.parametrize(
    ("limits", "status"),
    [({"streams_per_key": 1}, 429), ({"max_streams": 1}, 503), ({"requests_per_minute": 1}, 429)],
)
def test_limits_of_a_key_count(start_front, upstream, limits, status):
    front = start_front(**limits)
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two."))
        wire.until("chunk")
        wire.send(asked("Three.", context_id="two"))
        error = wire.error()
    assert (error["status_code"], error["context_id"]) == (status, "two")


def test_characters_of_a_day_count_as_they_come(start_front, upstream):
    front = start_front(characters_per_day=10)
    with open_cartesia(front) as wire:
        wire.send(asked("Hello. ", **{"continue": True}))
        wire.until("flush_done")
        wire.send(asked("Hello. "))
        error = wire.error()
    assert error["status_code"] == 429
    assert "3 of 10 characters" in error["message"]
    front.wait_until(lambda: upstream.active == 0 and front.streams == 0)


def test_text_that_the_server_has_taken_is_spoken_though_more_is_refused(front, upstream):
    upstream.most_characters = 20
    upstream.gates = asyncio.Semaphore(0)
    said = "One. Two. Three. "
    with open_cartesia(front) as wire:
        wire.send(asked(said, **{"continue": True}))
        messages = wire.until("chunk")
        wire.send(asked("Four. ", **{"continue": True}), asked("Five."))
        front.wait_until(lambda: upstream.texts[0].is_complete)
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        messages += wire.until("error")
        wire.send(asked(context_id="two"))
        wire.until("done")
    assert len(audio_in(messages)) == samples_of(said)
    assert [word for word, _, _ in words_in(messages)] == said.split()
    assert (messages[-1]["status_code"], messages[-1]["context_id"]) == (400, "one")
    assert "23 characters" in messages[-1]["message"]
    assert "at most 20" in messages[-1]["message"]


def test_text_of_which_the_server_takes_nothing_is_refused_at_once(front, upstream):
    upstream.most_characters = 3
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two.", **{"continue": True}))
        assert "9 characters" in wire.error()["message"]
    assert upstream.texts[0].is_complete is False


def test_utterance_that_the_server_has_taken_is_spoken_though_more_is_refused(front, upstream):
    upstream.most_characters = 10
    with open_omni(front) as wire:
        wire.send(CONFIG, {"type": "input.text", "text": "One. Two."})
        front.wait_until(lambda: upstream.texts != [] and upstream.texts[0].pushed == ["One. Two."])
        wire.send({"type": "input.text", "text": " Three."}, {"type": "input.done"})
        messages = wire.until("session.done", errors=True)
    [error] = [each for each in messages if isinstance(each, dict) and each["type"] == "error"]
    assert (error["status_code"], error["partial_audio"]) == (400, True)
    assert messages[-2]["total_bytes"] == 2 * samples_of("One. Two.")


@pytest.mark.parametrize("first", ["Hello.", "", " ... "])
def test_text_that_does_not_go_on_ends(start_front, upstream, first):
    front = start_front(idle_timeout_s=0.1)
    with open_cartesia(front) as wire:
        wire.send(asked(first, **{"continue": True}))
        error = wire.error()
        assert (error["status_code"], error["context_id"]) == (408, "one")
        assert "0.1 s" in error["message"]
        front.wait_until(lambda: upstream.active == 0 and front.streams == 0)
        wire.send(asked(context_id="two"))
        wire.until("done")


def test_text_that_the_server_waits_for_no_longer_has_timed_out(front, upstream):
    upstream.error = RefusedError(f"{upstream.url}: no text came for 30 s, and no end of it", "cancelled")
    upstream.error_after = 1
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two.", **{"continue": True}))
        error = wire.error()
    assert (error["status_code"], error["error_code"]) == (408, "timeout")
    assert "no text came for 30 s" in error["message"]


def test_front_waits_for_less_long_than_the_server():
    settings = Settings.read([])
    assert settings.front.idle_timeout_s < settings.cosyvoice2.text_timeout_s


def test_text_that_the_server_has_spoken_of_its_own_accord_is_idle(start_front, upstream):
    front = start_front(idle_timeout_s=0.1)
    upstream.ends_segments = True
    with open_cartesia(front) as wire:
        wire.send(asked("Hello.", **{"continue": True, "max_buffer_delay_ms": 20}))
        assert wire.error()["status_code"] == 408


def test_slow_speech_is_not_idle(start_front, upstream):
    front = start_front(idle_timeout_s=1.0, idle_socket_timeout_s=1.0)
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two.", add_timestamps=False, **{"continue": True}))
        wire.until("chunk")
        with pytest.raises(TimeoutError):
            wire.connection.recv(2.5)
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        wire.until("flush_done")


@pytest.mark.parametrize("path", PATHS)
def test_socket_without_a_text_is_closed(start_front, path):
    front = start_front(idle_socket_timeout_s=0.1)
    with open_wire(front, path) as wire:
        if "speech" in path:
            wire.send(CONFIG)
            assert wire.error()["status_code"] == 408
        with pytest.raises(ConnectionClosed) as caught:
            wire.receive()
    assert caught.value.rcvd.code == (1008 if "speech" in path else 1000)


def test_listener_who_is_behind_with_audio_need_not_answer_pings():
    assert uvicorn_config(Settings.read([])).ws_ping_timeout is None


def test_fifty_dropped_sockets_leave_nothing_behind(front, upstream):
    from contextlib import ExitStack

    upstream.gates = asyncio.Semaphore(0)
    before = front.do(lambda: len(asyncio.all_tasks()))
    with ExitStack() as stack:
        wires = [stack.enter_context(open_cartesia(front)) for _ in range(50)]
        for wire in wires:
            wire.send(asked("One. Two."))
        for wire in wires:
            wire.until("chunk")
        for wire in wires:
            wire.drop()
        front.wait_until(lambda: upstream.cancelled == 50 and upstream.active == 0 and front.streams == 0)
        front.wait_until(lambda: len(asyncio.all_tasks()) <= before)
