"""vllm-omni's websocket, message by message."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from cosyvoice_client import UnavailableError
from cosyvoice_client.encoders import FORMATS, usual_rate
from decoded import FRAME_SAMPLES, decode
from fake_text import samples_of
from wire_client import open_omni

DONE, CANCEL, CLOSE = {"type": "input.done"}, {"type": "input.cancel"}, {"type": "session.close"}


def config(**fields):
    return {"type": "session.config", "model": "cosyvoice2", "response_format": "pcm", **fields}


def text(content):
    return {"type": "input.text", "text": content}


def binary(messages):
    return b"".join(each for each in messages if isinstance(each, bytes))


def told(messages):
    return [each for each in messages if isinstance(each, dict)]


def kinds(messages):
    return [each["type"] for each in told(messages)]


def test_utterance_from_config_to_done(front):
    with open_omni(front) as wire:
        wire.send(config(), text("Hello "), text("there."), DONE)
        messages = wire.until("session.done")
    assert kinds(messages) == ["audio.start", "audio.done", "session.done"]
    start, done, session = told(messages)
    assert (
        start.items()
        >= {
            "utterance_index": 0,
            "sentence_index": 0,
            "sentence_text": "Hello there.",
            "format": "pcm",
            "sample_rate": 24_000,
            "channels": 1,
        }.items()
    )
    assert done.items() >= {"utterance_index": 0, "error": False}.items()
    assert done["total_bytes"] == len(binary(messages)) == 2 * samples_of("Hello there.")
    assert session == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}


def test_first_audio_leaves_before_the_text_has_ended(front):
    with open_omni(front) as wire:
        wire.send(config(), text("A first clause, and"))
        wire.until("audio.start")
        assert len(wire.receive()) == 2 * samples_of("A first clause,")
        wire.send(text(" the rest."), DONE)
        assert len(binary(wire.until("session.done"))) == 2 * samples_of(" and the rest.")


def test_utterances_follow_each_other(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_omni(front) as wire:
        wire.send(config(), text("One. Two."), DONE, text("Three."), DONE)
        messages = wire.until("audio.start")
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        messages += wire.until("session.done", 2)
    order = [(each["type"], each["utterance_index"]) for each in told(messages)]
    assert order == [
        (kind, index) for index in (0, 1) for kind in ("audio.start", "audio.done", "session.done")
    ]
    assert len(binary(messages)) == 2 * (samples_of("One. Two.") + samples_of("Three."))


def test_done_without_text_is_answered(front, upstream):
    with open_omni(front) as wire:
        wire.send(config(), DONE)
        assert wire.until("session.done")[-1]["total_sentences"] == 0
    assert upstream.texts == []


@pytest.mark.parametrize("format", FORMATS)
def test_formats_are_whole_files_each(front, format):
    with open_omni(front) as wire:
        wire.send(
            config(response_format=format), text("A long enough text."), DONE, text("Another one."), DONE
        )
        for spoken in ("A long enough text.", "Another one."):
            data = binary(wire.until("session.done"))
            rate = usual_rate(format)
            heard = decode(data, format, rate)
            assert 0 <= len(heard) - samples_of(spoken) * rate // 24_000 < FRAME_SAMPLES[format]


def test_words_come_with_the_audio(front):
    with open_omni(front) as wire:
        wire.send(config(word_timestamps=True), text("Hello there, all of you. "), DONE)
        messages = wire.until("session.done")
    assert told(messages) == messages
    chunks = [each for each in messages if each["type"] == "audio.chunk"]
    assert [each["chunk_id"] for each in chunks] == list(range(len(chunks)))
    data = b"".join(base64.b64decode(each["audio_b64"]) for each in chunks)
    assert len(data) == 2 * samples_of("Hello there, all of you. ")
    words = [word for each in chunks for word in each["timestamps"] or []]
    assert [word["word"] for word in words] == ["Hello", "there,", "all", "of", "you."]
    assert all(word["start_ms"] <= word["end_ms"] for word in words)
    assert words[-1]["end_ms"] == pytest.approx(1000 * len(data) / 48_000, abs=10)


def test_cancel_ends_the_speech(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_omni(front) as wire:
        wire.send(config(), text("One. Two."), DONE, text("Three."))
        wire.until("audio.start")
        wire.send(CANCEL)
        rest = wire.until("audio.cancelled", 2)
        assert sorted(each["utterance_index"] for each in told(rest)) == [0, 1]
        front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 0 and front.streams == 0)
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        wire.send(text("Four."), DONE)
        messages = wire.until("session.done")
    assert kinds(messages) == ["audio.start", "audio.done", "session.done"]
    assert {each["utterance_index"] for each in told(messages)} == {2}
    assert len(binary(messages)) == 2 * samples_of("Four.")


def test_cancel_of_nothing_is_answered(front):
    with open_omni(front) as wire:
        wire.send(config(), CANCEL)
        assert wire.receive() == {"type": "audio.cancelled", "utterance_index": None}


def test_close_lets_whole_utterances_finish(front, upstream):
    with open_omni(front) as wire:
        wire.send(config(), text("Hello."), DONE, text("half a"), CLOSE)
        messages = [json.loads(each) if isinstance(each, str) else each for each in wire.connection]
        assert wire.connection.close_code == 1000
    assert "session.done" in kinds(messages)
    assert len(binary(messages)) == 2 * samples_of("Hello.")
    front.wait_until(lambda: upstream.active == 0)


def test_configuration_counts_from_the_next_utterance(front, upstream):
    with open_omni(front) as wire:
        wire.send(config(voice="slt"), text("Hello."), config(voice="rms"))
        assert "input.done" in wire.error()["message"]
        wire.send(DONE)
        wire.until("session.done")
        wire.send(config(voice="rms", speed=1.5, instructions="Whisper."), text("Hello."), DONE)
        wire.until("session.done")
    assert [request.voice for request in upstream.requests] == ["slt", "rms"]
    assert (upstream.requests[1].speed, upstream.requests[1].instruct_text) == (1.5, "Whisper.")


def test_recording_is_spoken_like(front, upstream):
    from io import BytesIO

    import soundfile

    file = BytesIO()
    soundfile.write(file, np.tile([0.1, -0.1], 5 * 24_000), 48_000, format="WAV")
    recording = base64.b64encode(file.getvalue()).decode()
    with open_omni(front) as wire:
        for said in ({"ref_text": "Nothing."}, {}):
            wire.send(config(ref_audio=recording, **said), text("Hello."), DONE)
            wire.until("session.done")
    assert [request.reference.text for request in upstream.requests] == ["Nothing.", ""]
    assert [request.cross_lingual for request in upstream.requests] == [None, True]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"response_format": "ogg"}, "response_format: 'ogg'"),
        ({"speed": 4}, "speed: 4"),
        ({"speed": "fast"}, "speed: 'fast'"),
        ({"sample_rate": 44_100, "response_format": "opus"}, "sample_rate: 44100"),
        ({"model": "parrot"}, "parrot"),
        ({"voice": 3}, "voice: 3"),
        ({"word_timestamps": True, "response_format": "mp3"}, "word_timestamps"),
        ({"split_granularity": "word"}, "split_granularity: 'word'"),
        ({"ref_text": "x"}, "ref_text"),
        ({"ref_audio": "https://elsewhere/a.wav", "ref_text": "x"}, "not fetched"),
    ],
)
def test_wrong_configuration_is_named_and_closes(front, fields, named):
    with open_omni(front) as wire:
        wire.send(config(**fields))
        assert named in wire.error()["message"]
        with pytest.raises(ConnectionClosed) as caught:
            wire.receive()
    assert caught.value.rcvd.code == 1008


@pytest.mark.parametrize("message", [text("Hello."), "{", b"\0", {"type": 5}])
def test_configuration_comes_first(front, message):
    with open_omni(front) as wire:
        wire.send(message)
        wire.error()
        with pytest.raises(ConnectionClosed):
            wire.receive()


def test_configuration_comes_in_time(start_front):
    front = start_front(arrival_timeout_s=0.1)
    with open_omni(front) as wire:
        error = wire.error()
        assert (error["status_code"], error["code"]) == (408, "timeout")
        assert "session.config" in error["message"]
        with pytest.raises(ConnectionClosed):
            wire.receive()


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"type": "input.text"}, "text: it is missing"),
        ({"type": "input.text", "text": 5}, "text: 5"),
        ({"type": "input.more"}, "'input.more'"),
        ("{", "no JSON"),
        (b"\0", "binary"),
    ],
)
def test_wrong_message_is_refused_alone(front, message, named):
    with open_omni(front) as wire:
        wire.send(config(), text("Hello "), message, text("there."), DONE)
        messages = wire.until("session.done", errors=True)
    assert [named in each["message"] for each in told(messages) if each["type"] == "error"] == [True]
    assert len(binary(messages)) == 2 * samples_of("Hello there.")


@pytest.mark.parametrize("after", [0, 1])
def test_error_ends_its_utterance(front, upstream, after):
    upstream.error, upstream.error_after = UnavailableError("upstream:8001: busy; try again later"), after
    with open_omni(front) as wire:
        wire.send(config(), text("One. Two."))
        error = wire.error()
        assert (
            error.items()
            >= {"message": "busy; try again later", "status_code": 503, "partial_audio": after > 0}.items()
        )
        wire.send(text("Three."), DONE)
        done, session = told(wire.until("session.done"))[-2:]
        assert (done["type"], done["error"]) == ("audio.done", True)
        assert session["utterance_index"] == 0
        upstream.error = None
        wire.send(text("Four."), DONE)
        assert len(binary(wire.until("session.done"))) == 2 * samples_of("Four.")


@pytest.mark.parametrize("drop", [True, False])
def test_closed_socket_ends_its_utterances(front, upstream, drop):
    upstream.gates = asyncio.Semaphore(0)
    before = front.do(lambda: len(asyncio.all_tasks()))
    with open_omni(front) as wire:
        wire.send(config(), text("One. Two."), DONE, text("Three."))
        wire.until("audio.start")
        if drop:
            wire.drop()
        else:
            wire.connection.close()
        front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 0 and front.streams == 0)
        front.wait_until(lambda: len(asyncio.all_tasks()) <= before)
