"""Cartesia's websocket, message by message."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from cosyvoice_front.wires import cartesia
from fake_text import samples_of
from fake_upstream import tone
from wire_client import VERSION, asked, audio_in, open_cartesia, open_wire, words_in


def of(messages, name):
    return [message for message in messages if message.get("context_id") == name]


def kinds(messages):
    return [message["type"] for message in messages]


def test_text_is_spoken_and_done_is_said_once(front):
    with open_cartesia(front) as wire:
        wire.send(asked("Hello there."), asked("Another.", context_id="two"))
        messages = wire.until("done", 2)
    for name, text in (("one", "Hello there."), ("two", "Another.")):
        mine = of(messages, name)
        assert len(audio_in(mine)) == samples_of(text)
        assert [each["done"] for each in mine].count(True) == 1
        assert mine[-1] == {
            "type": "done",
            "context_id": name,
            "done": True,
            "status_code": 200,
        }


def test_chunks_say_what_cartesia_s_say(front):
    with open_cartesia(front) as wire:
        wire.send(asked())
        chunk = wire.until("chunk")[-1]
    assert chunk["done"] is False
    assert chunk["status_code"] == 206
    assert chunk["context_id"] == "one"
    assert chunk["step_time"] >= 0
    assert chunk["flush_id"] == 1


def test_first_audio_leaves_before_the_text_has_ended(front):
    with open_cartesia(front) as wire:
        wire.send(asked("A first clause, and", **{"continue": True, "max_buffer_delay_ms": 5000}))
        assert len(audio_in(wire.until("chunk"))) == samples_of("A first clause,")
        wire.send(asked(" the rest.", max_buffer_delay_ms=5000))
        messages = wire.until("done")
    assert len(audio_in(messages)) == samples_of(" and the rest.")


def test_text_is_handed_on_as_it_came(front, upstream):
    with open_cartesia(front) as wire:
        for piece in ("One, ", "two. "):
            wire.send(asked(piece, **{"continue": True}))
        wire.send(asked(" "))
        wire.until("done")
    assert upstream.texts[0].pushed == ["One, ", "|", "two. ", "|"]


def test_each_message_is_a_segment_without_a_delay(front):
    with open_cartesia(front) as wire:
        wire.send(asked("One. ", **{"continue": True}), asked("Two. ", **{"continue": True}), asked(" "))
        messages = wire.until("done")
    flushes = [each for each in messages if each["type"] == "flush_done"]
    assert [each["flush_id"] for each in flushes] == [1, 2]
    assert {each["flush_done"] for each in flushes} == {True}
    ids = [each["flush_id"] for each in messages if each["type"] == "chunk"]
    assert ids == sorted(ids)
    assert set(ids) == {1, 2}


def test_flush_speaks_what_has_come(front):
    later = {"continue": True, "max_buffer_delay_ms": 5000}
    with open_cartesia(front) as wire:
        wire.send(asked("no end in sight", **later), asked("", flush=True, **later))
        messages = wire.until("flush_done")
        assert len(audio_in(messages)) == samples_of("no end in sight")
        wire.send(asked(" more", max_buffer_delay_ms=5000))
        wire.until("done")


def test_flush_of_nothing_is_done_at_once(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(asked("", flush=True, **{"continue": True}))
        assert kinds(wire.until("flush_done")) == ["flush_done"]
        wire.send(asked("Go."))
        wire.until("done")
    assert upstream.texts[0].pushed == ["Go."]


def test_each_flush_is_answered(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    again = asked("", flush=True, **{"continue": True})
    with open_cartesia(front) as wire:
        wire.send(*[again] * 3, asked("One. Two. ", **{"continue": True}))
        messages = wire.until("chunk")
        wire.send(*[again] * 20, asked("Three."))
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        messages += wire.until("done")
    assert [each["flush_id"] for each in messages if each["type"] == "flush_done"] == list(range(1, 25))
    assert "".join(upstream.texts[0].pushed) == "One. Two. |Three."


def test_text_without_an_end_waits_only_as_long_as_asked(front):
    with open_cartesia(front) as wire:
        wire.send(asked("and then", **{"continue": True, "max_buffer_delay_ms": 50}))
        messages = wire.until("chunk")
        wire.send(asked("", max_buffer_delay_ms=50))
        messages += wire.until("done")
    assert len(audio_in(messages)) == samples_of("and then")
    assert "flush_done" not in kinds(messages)  # nobody asked for it


def test_text_waits_for_the_usual_time_unless_asked(front, monkeypatch):
    monkeypatch.setattr(cartesia, "BUFFER_DELAY_MS", 50)
    with open_cartesia(front) as wire:
        wire.send(asked("and then", max_buffer_delay_ms=None, **{"continue": True}))
        assert len(audio_in(wire.until("chunk"))) == samples_of("and then")


def test_words_come_as_they_were_sent_while_the_audio_streams(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    text = "It costs $1,299.50, Dr. Müller said; that is ALL. "
    later = {"continue": True, "max_buffer_delay_ms": 5000}
    with open_cartesia(front) as wire:
        wire.send(asked(text, **later))
        wire.send(asked(text, **later))  # its last clause ends here
        front.do(lambda: [upstream.gates.release() for _ in range(2)])
        messages = wire.until("timestamps")
        assert upstream.active == 1  # and the text is open still
        wire.send(asked("", max_buffer_delay_ms=5000))
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        messages += wire.until("done")
    words = words_in(messages)
    assert [word for word, _, _ in words] == text.split() * 2
    heard_s = 0.0
    for message in messages:
        if message["type"] == "chunk":
            heard_s += len(audio_in([message])) / 24_000
        for _, _, end in words_in([message]) if message["type"] == "timestamps" else []:
            assert end <= heard_s + 0.001


def test_words_are_left_out_unless_asked_for(front):
    with open_cartesia(front) as wire:
        wire.send(asked(add_timestamps=False))
        assert "timestamps" not in kinds(wire.until("done"))


def test_cancel_ends_the_speech(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two. Three.", **{"continue": True}), asked("Four.", context_id="two"))
        wire.until("chunk", 2)
        wire.send({"context_id": "one", "cancel": True})
        rest = wire.until("done")
        left = [kind for kind in kinds(of(rest, "one")) if kind != "timestamps"]  # of the second chunk
        assert left == ["chunk", "done"]  # in which it fades out
        front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 1 and front.streams == 1)
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        wire.send(asked("Five.", context_id="three"))
        assert "one" not in {each.get("context_id") for each in wire.until("done", 2)}


def test_cancel_does_not_wait_for_the_server(front, upstream):
    upstream.gates, upstream.may_leave = asyncio.Semaphore(0), asyncio.Event()
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two."))
        wire.until("chunk")
        wire.send({"context_id": "one", "cancel": True}, asked("Three.", context_id="two"))
        messages = wire.until("chunk", 2)
        assert kinds(of(messages, "one")) == ["chunk", "done"]
        front.do(upstream.may_leave.set)
        front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 1)


def test_text_waits_here_for_a_listener_who_is_behind(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    text = "word " * 2000
    later = {"max_buffer_delay_ms": 5000}
    with open_cartesia(front) as wire:
        wire.send(asked(text, **{"continue": True}, **later))
        messages = wire.until("chunk")
        front.wait_until(lambda: sum(map(len, upstream.texts[0].pushed)) >= 4000)
        assert sum(map(len, upstream.texts[0].pushed)) <= 5000
        wire.send(asked("", **later))
        front.do(lambda: [upstream.gates.release() for _ in range(99)])
        messages += wire.until("done")
    assert "".join(upstream.texts[0].pushed) == text
    assert len(audio_in(messages)) == samples_of(text)


def test_late_messages_to_an_ended_context_begin_nothing(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two.", **{"continue": True}))
        wire.until("chunk")
        wire.send({"context_id": "one", "cancel": True}, {"context_id": "one", "cancel": True})
        wire.send(asked("", **{"continue": False}), asked("Late.", **{"continue": True}))
        messages = wire.until("error")
    assert kinds(messages)[-2:] == ["done", "error"]
    assert messages[-1]["error_code"] == "context_ended"
    assert len(upstream.texts) == 1


def test_unknown_context_can_t_be_cancelled(front):
    with open_cartesia(front) as wire:
        wire.send({"context_id": "never", "cancel": True})
        error = wire.error()
    assert (error["status_code"], error["context_id"]) == (400, "never")
    assert "'never'" in error["message"]


@pytest.mark.parametrize("drop", [True, False])
def test_closed_socket_ends_all_its_contexts(front, upstream, drop):
    upstream.gates = asyncio.Semaphore(0)
    before = front.do(lambda: len(asyncio.all_tasks()))
    with open_cartesia(front) as wire:
        for number in range(5):
            wire.send(asked("One. Two.", context_id=str(number), **{"continue": number % 2 == 0}))
        wire.until("chunk", 5)
        assert upstream.active == 5
        if drop:
            wire.drop()
        else:
            wire.connection.close()
        front.wait_until(lambda: upstream.cancelled == 5 and upstream.active == 0 and front.streams == 0)
        front.wait_until(lambda: len(asyncio.all_tasks()) <= before)


def test_client_that_does_not_read_is_given_up(start_front, upstream):
    front = start_front(stalled_client_timeout_s=0.2)
    with open_cartesia(front) as wire:
        wire.send(asked("word " * 2000, add_timestamps=False))
        front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)
        front.wait_until(lambda: front.connections == 0)
        wire.drop()  # it would wait for an answer to its goodbye


@pytest.mark.parametrize(
    ("encoding", "bytes_each"), [("pcm_s16le", 2), ("pcm_f32le", 4), ("pcm_mulaw", 1), ("pcm_alaw", 1)]
)
@pytest.mark.parametrize("rate", [8000, 24_000])
def test_formats(front, encoding, bytes_each, rate):
    import base64

    output = {"container": "raw", "encoding": encoding, "sample_rate": rate}
    with open_cartesia(front) as wire:
        wire.send(asked("A long enough text.", output_format=output))
        chunks = [each for each in wire.until("done") if each["type"] == "chunk"]
    data = b"".join(base64.b64decode(each["data"]) for each in chunks)
    assert abs(len(data) / bytes_each - samples_of("A long enough text.") * rate / 24_000) <= 1


def test_floats_are_the_speech(front):
    import base64

    output = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 24_000}
    with open_cartesia(front) as wire:
        wire.send(asked("Hello.", output_format=output))
        chunks = [each for each in wire.until("done") if each["type"] == "chunk"]
    samples = np.frombuffer(b"".join(base64.b64decode(each["data"]) for each in chunks), "<f4")
    np.testing.assert_array_equal(samples, tone(samples_of("Hello.") / 24_000))


def test_request_says_how_to_speak(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(
            asked(
                voice={"mode": "id", "id": "slt"}, generation_config={"speed": 1.5}, seed=7, language="en-GB"
            )
        )
        wire.until("done")
    request = upstream.requests[0]
    assert (request.voice, request.speed, request.seed, request.language) == ("slt", 1.5, 7, "en-GB")


def test_text_of_marks_alone_is_a_pause(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(asked("..."))
        assert len(audio_in(wire.until("done"))) == 7200
    assert upstream.texts == []


def test_segment_without_words_is_passed_by(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(*[asked(text, **{"continue": True}) for text in ("One. ", "❤️ ", "\u200b")], asked(""))
        assert kinds(wire.until("done")).count("flush_done") == 3
    assert upstream.texts[0].pushed == ["One. ", "|"]


def test_request_id_is_given_to_the_server(front, upstream):
    with open_cartesia(front, x_request_id="named") as wire:
        assert wire.connection.response.headers["x-request-id"] == "named"
        assert wire.connection.response.headers["x-ai-generated"] == "true"
        wire.send(asked(), asked(context_id="two"))
        wire.until("done", 2)
    assert upstream.request_ids == ["named-1", "named-2"]


@pytest.mark.parametrize("version", ["2025-04-16", "2026-03-01"])
def test_versions_in_the_header(front, version):
    with open_wire(front, "/tts/websocket", {"Cartesia-Version": version}) as wire:
        wire.send(asked())
        wire.until("done")


@pytest.mark.parametrize("query", ["", "?cartesia_version=2024-06-10"])
def test_other_versions_are_refused(front, query):
    with pytest.raises(InvalidStatus) as caught, open_wire(front, f"/tts/websocket{query}"):
        pass
    assert caught.value.response.status_code == 400
    assert VERSION in caught.value.response.body.decode()
