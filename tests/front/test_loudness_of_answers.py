"""Answers at the loudness that a request asks for."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_runtime.audio.levelling import make_leveller
from cosyvoice_runtime.audio.loudness import LoudnessMeter
from decoded import decode
from fake_upstream import tone
from raw_http import ask, send
from wire_client import FORMAT, VERSION, asked, audio_in, open_cartesia, open_omni

QUIET = [0.2 * tone(0.3), 0.2 * tone(1.1), 0.2 * tone(2.0)]


def loudness(samples, rate=24_000):
    meter = LoudnessMeter(rate)
    meter.push(samples)
    return meter.integrated


def levelled(samples, target, *, whole=False, rate=24_000):
    leveller = make_leveller(rate, target, whole=whole)
    return np.concatenate([leveller.push(samples), leveller.finish()])


def spoken(front, rate=24_000, **fields):
    answer = ask(front, response_format="pcm", sample_rate=rate, **fields)
    assert answer.status == 200
    return decode(answer.body, "pcm")


@pytest.fixture
def quiet(upstream):
    upstream.chunks = list(QUIET)
    return upstream


@pytest.mark.parametrize("rate", [8_000, 24_000])
def test_whole_answer_has_the_loudness(front, quiet, rate):
    samples = spoken(front, rate, target_lufs=-18, stream=False)
    assert len(samples) == len(quiet.samples) * rate // 24_000
    assert loudness(samples, rate) == pytest.approx(-18, abs=0.1)


def test_stream_has_a_slow_gain_however_it_is_cut(front, quiet):
    expected = levelled(quiet.samples, -18.0)
    for chunks in (QUIET, [np.concatenate(QUIET)]):
        quiet.chunks = list(chunks)
        np.testing.assert_allclose(spoken(front, target_lufs=-18), expected, atol=1 / 32768)
    assert loudness(expected[-24_000:]) == pytest.approx(-18, abs=0.7)


@pytest.mark.parametrize("stream", [None, True, False])
def test_nobody_asks_and_samples_are_untouched(front, quiet, stream):
    np.testing.assert_allclose(spoken(front, stream=stream), quiet.samples, atol=0.51 / 32768)


def test_failure_before_the_end_of_a_whole_answer_has_its_own_status(front, quiet):
    quiet.error, quiet.error_after = ZeroDivisionError(), 2
    answer = ask(front, target_lufs=-18, stream=False)
    assert answer.status == 500


@pytest.mark.parametrize("value", [-41, -9.5, 0, "-20"])
def test_target_that_is_not_served_is_refused(front, upstream, value):
    answer = ask(front, target_lufs=value)
    assert (answer.status, answer.error["param"]) == (400, "target_lufs")
    assert upstream.requests == []


@pytest.mark.parametrize("value", [-41, -9])
def test_refusal_names_value_and_limit(front, value):
    message = ask(front, target_lufs=value).error["message"]
    assert "-40" in message or "-10" in message


def test_cartesia_s_routes_level_as_well(front, quiet):
    body = {
        "model_id": "sonic-3",
        "transcript": "Hello there.",
        "voice": {"mode": "id", "id": "default"},
        "output_format": FORMAT,
        "target_lufs": -18,
    }
    import json

    answer = send(front, path="/tts/bytes", body=json.dumps(body).encode(), **{"Cartesia-Version": VERSION})
    expected = levelled(quiet.samples, -18.0)
    np.testing.assert_allclose(decode(answer.body, "pcm"), expected, atol=1 / 32768)
    with open_cartesia(front) as wire:
        wire.send(asked("Hello there.", target_lufs=-30.0))
        found = audio_in(wire.until("done"))
    np.testing.assert_allclose(found, levelled(tone(0.6), -30.0), atol=1 / 32768)


def test_vllm_omni_s_socket_levels_as_well(front):
    with open_omni(front) as wire:
        wire.send({"type": "session.config", "response_format": "pcm", "target_lufs": -30.0})
        wire.send({"type": "input.text", "text": "Hello there."}, {"type": "input.done"})
        data = b"".join(each for each in wire.until("session.done") if isinstance(each, bytes))
    np.testing.assert_allclose(decode(data, "pcm"), levelled(tone(0.6), -30.0), atol=1 / 32768)
