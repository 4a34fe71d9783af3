"""Formats of telephones, asked for by openai's own client."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_client import g711
from cosyvoice_client.encoders import LAWS
from cosyvoice_client.pcm import pcm16
from cosyvoice_client.resampler import StreamResampler
from decoded import audio_of, events
from raw_http import ask
from wire_client import open_omni

ASKED = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Hello there."}


def at(rate, samples):
    resampler = StreamResampler(24_000, rate)
    return np.concatenate([resampler.push(samples), resampler.finish()])


def spoken(client, **asked):
    with client.audio.speech.with_streaming_response.create(**ASKED, **asked) as response:
        return response.headers, b"".join(response.iter_bytes())


@pytest.mark.parametrize(
    ("format", "rate", "kind"),
    [
        ("g711_ulaw", None, "audio/basic"),
        ("g711_alaw", None, "audio/PCMA;rate=8000"),
        ("g711_ulaw", 16_000, "audio/PCMU;rate=16000"),
        ("g711_alaw", 8_000, "audio/PCMA;rate=8000"),
    ],
)
def test_g711_is_the_speech_sample_by_sample(client, upstream, format, rate, kind):
    extra = {} if rate is None else {"sample_rate": rate}
    headers, body = spoken(client, response_format=format, extra_body=extra)
    assert headers["content-type"] == kind
    assert headers["x-sample-rate"] == headers["x-audio-sample-rate"] == str(rate or 8_000)
    assert body == g711.encode(LAWS[format], pcm16(at(rate or 8_000, upstream.samples)))


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_pcm_of_a_telephone_s_rate_is_the_whole_resampled(client, upstream, rate):
    """What is streamed in pieces, of which the first is 60 ms, is what the whole would be."""
    headers, body = spoken(client, response_format="pcm", extra_body={"sample_rate": rate})
    assert headers["content-type"] == f"audio/pcm;rate={rate}"
    assert body == pcm16(at(rate, upstream.samples)).tobytes()


def test_wav_of_a_telephone_s_rate_says_so(client, upstream):
    _headers, body = spoken(client, response_format="wav", extra_body={"sample_rate": 8_000})
    assert int.from_bytes(body[24:28], "little") == 8_000
    assert body.endswith(pcm16(at(8_000, upstream.samples)).tobytes())


def test_g711_comes_in_events(client, upstream):
    _headers, body = spoken(client, response_format="g711_ulaw", stream_format="sse")
    assert len(audio_of(events(body))) == len(upstream.samples) // 3


@pytest.mark.parametrize("rate", [24_000, 48_000, 8_001])
def test_g711_of_another_rate_is_refused(front, upstream, rate):
    answer = ask(front, response_format="g711_alaw", sample_rate=rate)
    assert (answer.status, answer.error["param"]) == (400, "sample_rate")
    assert f"{rate} is none of 8000, 16000 for g711_alaw" in answer.error["message"]
    assert upstream.requests == []


def test_socket_that_speaks_g711_says_its_rate(front):
    with open_omni(front) as wire:
        wire.send({"type": "session.config", "model": "cosyvoice2", "response_format": "g711_ulaw"})
        wire.send({"type": "input.text", "text": "Hello there."}, {"type": "input.done"})
        start = wire.until("audio.start")[-1]
        data = b"".join(each for each in wire.until("session.done") if isinstance(each, bytes))
    assert (start["format"], start["sample_rate"]) == ("g711_ulaw", 8_000)
    assert len(data) == round(len("Hello there.") * 0.05 * 8_000)
