"""What Cartesia's websocket refuses, and what an error ends."""

from __future__ import annotations

import asyncio
import json

import pytest

from cosyvoice_client import RefusedError, UnavailableError
from fake_text import samples_of
from wire_client import asked, audio_in, open_cartesia


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"transcript": 7}, 400, "transcript: 7"),
        ({"continue": "yes"}, 400, "continue: 'yes'"),
        ({"voice": {"mode": "embedding", "embedding": [1.0]}}, 400, "voice.mode: 'embedding'"),
        ({"voice": "slt"}, 400, "voice: 'slt'"),
        ({"voice": {"mode": "id", "id": "0" * 64}}, 404, "0000"),
        ({"model_id": "parrot-1"}, 404, "parrot-1"),
        ({"model_id": None}, 400, "model_id: it is missing"),
        ({"output_format": None}, 400, "output_format: it is missing"),
        ({"output_format": {"container": "mp3"}}, 400, "output_format.container: 'mp3'"),
        (
            {"output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 7}},
            400,
            "output_format.sample_rate: 7: it is none of 8000",
        ),
        ({"generation_config": {"speed": 2.5}}, 400, "generation_config.speed: 2.5"),
        ({"generation_config": {"emotion": "Happy"}}, 400, "generation_config.emotion: 'Happy'"),
        ({"generation_config": {"volume": 2}}, 400, "generation_config.volume: 2"),
        ({"max_buffer_delay_ms": 5001}, 400, "max_buffer_delay_ms: 5001"),
        ({"context_id": ""}, 400, "context_id: ''"),
        ({"context_id": 5}, 400, "context_id: 5"),
        ({"pronunciation_dict_id": "x"}, 404, "pronunciation dictionary 'x'"),
        ({"seed": -1}, 400, "seed: -1"),
    ],
)
def test_wrong_fields_are_named(front, upstream, fields, status, text):
    with open_cartesia(front) as wire:
        wire.send(asked(**{"continue": True, **fields}))
        error = wire.error()
        assert error["status_code"] == status
        assert text in error["message"]
        assert error["message"] in error["error"]
        assert "done" not in error
        wire.send(asked("Still here.", context_id="two"))
        wire.until("done")
    assert len(upstream.texts) == 1


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('{"context_id": ', "no JSON"),
        ("[1, 2]", "no JSON object: [1, 2]"),
        ('{"a": NaN}', "no JSON"),
        ("[" * 1000, "no JSON"),
        (b"\x00\x01", "binary"),
    ],
)
def test_what_is_no_message_is_refused(front, message, text):
    with open_cartesia(front) as wire:
        wire.send(message)
        error = wire.error()
        assert error["status_code"] == 400
        assert text in error["message"]
        wire.send(asked())
        wire.until("done")


def test_context_can_t_change_its_voice(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two.", **{"continue": True}))
        wire.until("chunk")
        wire.send(asked("Three.", voice={"mode": "id", "id": "rms"}))
        error = wire.error()
    assert error["context_id"] == "one"
    assert "voice" in error["message"]
    front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 0)


@pytest.mark.parametrize(
    "late",
    [
        asked("Three."),
        asked("Three.", **{"continue": True}),
        {**asked(), "transcript": 5},
    ],
)
def test_text_after_the_end_is_refused_and_the_rest_is_heard(front, upstream, late):
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two."))
        messages = wire.until("chunk")
        wire.send(late)
        messages += wire.until("error")
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        messages += wire.until("done")
    assert len(audio_in(messages)) == samples_of("One. Two.")


def test_end_may_be_said_twice(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two."))
        messages = wire.until("chunk")
        wire.send(asked(""), asked(""), {"context_id": "never", "cancel": True})
        messages += wire.until("error")  # of the one that never was: the ends have been read
        front.do(lambda: [upstream.gates.release() for _ in range(9)])
        messages += wire.until("done")
    assert len(audio_in(messages)) == samples_of("One. Two.")
    assert [each["context_id"] for each in messages if each["type"] == "error"] == ["never"]


def test_message_of_another_context_needs_its_fields_only_once(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(asked("One. ", **{"continue": True}))
        wire.send({"context_id": "one", "transcript": "Two."})
        wire.until("done")
    assert upstream.texts[0].pushed == ["One. ", "|", "Two."]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnavailableError("upstream:8001: busy; try again later"), 503),
        (RefusedError("upstream:8001: voice: 'x' is unknown", "not_found"), 404),
        (RefusedError("upstream:8001: secret", "internal"), 500),
    ],
)
@pytest.mark.parametrize("after", [0, 1])
def test_server_s_errors_end_their_context_alone(front, upstream, error, status, after):
    upstream.error, upstream.error_after = error, after
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two. Three."))
        said = wire.error()
        assert (said["status_code"], said["context_id"]) == (status, "one")
        assert "upstream" not in json.dumps(said)  # a port may be in the id by chance
        assert "secret" not in json.dumps(said)
        upstream.error = None
        wire.send(asked(context_id="two"))
        wire.until("done")
