"""What a listener hears of speech that is cut."""

from __future__ import annotations

import asyncio
import http.client

import numpy as np
import pytest

from cosyvoice_client import UnavailableError
from cosyvoice_runtime.audio.fade import FadeOut
from decoded import audio_of, decode, events
from fake_text import samples_of
from fake_upstream import tone
from raw_http import ask
from wire_client import asked, audio_in, open_cartesia, open_omni

FADE = 120
CONFIG = {"type": "session.config", "model": "cosyvoice2", "response_format": "pcm"}


def faded(samples):
    """The samples and the 5 ms behind them."""
    fade = FadeOut(24_000)
    fade.hear(samples)
    return np.concatenate([samples, fade.rest()])


def assert_heard(found, samples):
    expected = faded(samples)
    assert len(found) == len(samples) + FADE
    np.testing.assert_allclose(found, expected, atol=1 / 32768)
    assert found[-1] == 0


@pytest.fixture
def first(upstream):
    """A text that goes on, and its first chunk: 3.5 s, which are four messages."""
    upstream.gates = asyncio.Semaphore(0)
    text = "x" * 69 + "."
    return text, tone(samples_of(text) / 24_000)


def test_context_that_is_cancelled_fades_out(front, upstream, first):
    text, samples = first
    with open_cartesia(front) as wire:
        wire.send(asked(text, **{"continue": True}, add_timestamps=False))
        messages = wire.until("chunk", 4)
        wire.send({"context_id": "one", "cancel": True})
        messages += wire.until("done")
        assert_heard(audio_in(messages), samples)
        front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 0)


def test_cancel_amid_the_messages_of_a_chunk_leaves_no_gap(front, first):
    text, samples = first
    with open_cartesia(front) as wire:
        wire.send(asked(text, **{"continue": True}, add_timestamps=False))
        messages = wire.until("chunk")
        wire.send({"context_id": "one", "cancel": True})
        found = audio_in(messages + wire.until("done"))
    assert len(found) % 24_000 in (FADE, 12_000 + FADE)
    assert_heard(found, samples[: len(found) - FADE])


def test_context_that_fails_fades_out_before_its_error(front, upstream):
    upstream.error, upstream.error_after = UnavailableError("upstream:8001: gone"), 1
    with open_cartesia(front) as wire:
        wire.send(asked("One. Two.", **{"continue": True}, add_timestamps=False))
        messages = wire.until("chunk")
        wire.send(asked(" Three.", **{"continue": True}, add_timestamps=False))
        messages += wire.until("error")
    assert_heard(audio_in(messages), tone(samples_of("One. Two.") / 24_000))


def test_context_that_was_not_heard_just_ends(front):
    with open_cartesia(front) as wire:
        wire.send(asked("No end", **{"continue": True}, max_buffer_delay_ms=5000))
        wire.send({"context_id": "one", "cancel": True})
        assert [each["type"] for each in wire.until("done")] == ["done"]


def test_context_that_has_ended_does_not_fade(front):
    with open_cartesia(front) as wire:
        wire.send(asked("Hello there."))
        found = audio_in(wire.until("done"))
    assert len(found) == samples_of("Hello there.")


def test_utterance_that_is_cancelled_fades_out(front, upstream, first):
    text, samples = first
    with open_omni(front) as wire:
        wire.send(CONFIG, {"type": "input.text", "text": text})
        messages = wire.until("bytes", 4)
        wire.send({"type": "input.cancel"})
        messages += wire.until("audio.cancelled")
    data = b"".join(each for each in messages if isinstance(each, bytes))
    assert_heard(decode(data, "pcm"), samples)


def test_encoded_utterance_that_is_cancelled_is_whole_up_to_the_fade(front, upstream, first):
    """What an encoder holds back comes with the fade."""
    text, samples = first
    with open_omni(front) as wire:
        wire.send({**CONFIG, "response_format": "mp3"})
        wire.send({"type": "input.text", "text": text})
        messages = wire.until("bytes", 4)
        wire.send({"type": "input.cancel"})
        messages += wire.until("audio.cancelled")
    heard = decode(b"".join(each for each in messages if isinstance(each, bytes)), "mp3")
    assert len(samples) + FADE <= len(heard) < len(samples) + FADE + 2 * 576


def test_events_fade_out_before_their_error(front, upstream):
    upstream.error, upstream.error_after = UnavailableError("upstream:8001: gone"), 1
    found = events(ask(front, stream_format="sse", response_format="pcm").body)
    assert found[-1]["type"] == "speech.audio.error"
    assert_heard(decode(audio_of(found), "pcm"), upstream.chunks[0])


def test_body_that_ends_unfinished_fades_out(front, upstream):
    upstream.error, upstream.error_after = UnavailableError("upstream:8001: gone"), 1
    with pytest.raises(http.client.IncompleteRead) as error:
        ask(front, response_format="pcm")
    assert_heard(decode(error.value.partial, "pcm"), upstream.chunks[0])
