"""``POST /tts/bytes``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cosyvoice_client import UnavailableError
from cosyvoice_front.keys import digest
from decoded import decode
from raw_http import send
from wire_client import FORMAT, VERSION

BODY = {
    "model_id": "sonic-3",
    "transcript": "Hello there.",
    "voice": {"mode": "id", "id": "default"},
    "output_format": FORMAT,
}


def ask(front, version=VERSION, key=None, **fields):
    content = {name: value for name, value in {**BODY, **fields}.items() if value is not None}
    headers = {"Cartesia-Version": version} if version else {}
    headers |= {"X-API-Key": key} if key else {}
    return send(front, path="/tts/bytes", body=json.dumps(content).encode(), **headers)


def refusal(answer, status):
    assert answer.status == status
    content = json.loads(answer.body)
    assert content.keys() == {"error_code", "title", "message", "request_id"}
    assert content["request_id"] == answer.headers["x-request-id"]
    return content["message"]


def test_raw_samples_are_the_speech(front, upstream):
    answer = ask(front)
    assert answer.status == 200
    assert answer.headers["x-ai-generated"] == "true"
    assert abs(decode(answer.body, "pcm") - upstream.samples).max() <= 1 / 32768


def test_floats_are_the_speech(front, upstream):
    answer = ask(front, output_format={**FORMAT, "encoding": "pcm_f32le"})
    np.testing.assert_array_equal(np.frombuffer(answer.body, "<f4"), upstream.samples)


@pytest.mark.parametrize("encoding", ["pcm_mulaw", "pcm_alaw"])
def test_telephone_s_encodings_decode_to_the_speech(front, upstream, encoding):
    import av

    answer = ask(front, output_format={**FORMAT, "encoding": encoding})
    decoder = av.CodecContext.create(encoding, "r")
    decoder.sample_rate, decoder.layout = 24_000, "mono"
    frames = decoder.decode(av.Packet(answer.body))
    samples = np.concatenate([frame.to_ndarray()[0] for frame in frames]) / 32768
    assert abs(samples - upstream.samples).max() < 0.02


@pytest.mark.parametrize("rate", [8000, 44_100])
@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le", "pcm_mulaw"])
def test_rates(front, upstream, rate, encoding):
    answer = ask(front, output_format={"container": "raw", "encoding": encoding, "sample_rate": rate})
    size = {"pcm_s16le": 2, "pcm_f32le": 4, "pcm_mulaw": 1}[encoding]
    assert abs(len(answer.body) / size - len(upstream.samples) * rate / 24_000) <= 1


def test_wav(front, upstream):
    answer = ask(front, output_format={**FORMAT, "container": "wav"})
    assert answer.headers["content-type"] == "audio/wav"
    assert len(decode(answer.body, "wav")) == len(upstream.samples)


def test_mp3_has_the_bit_rate_that_is_asked_for(front, upstream):
    small, large = (
        ask(front, output_format={"container": "mp3", "sample_rate": 44_100, "bit_rate": rate}).body
        for rate in (32_000, 192_000)
    )
    seconds = len(upstream.samples) / 24_000
    assert 8 * len(large) / seconds == pytest.approx(192_000, rel=0.15)
    assert 8 * len(small) / seconds == pytest.approx(32_000, rel=0.15)


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"transcript": None}, 400, "transcript: it is missing"),
        ({"transcript": " "}, 400, "transcript: there is no text"),
        ({"transcript": "x" * 4097}, 400, "at most 4096"),
        ({"output_format": {"container": "ogg"}}, 400, "ogg"),
        ({"output_format": {**FORMAT, "sample_rate": 24_001}}, 400, "24001"),
        ({"output_format": {**FORMAT, "container": "wav", "encoding": "pcm_f32le"}}, 400, "pcm_f32le"),
        ({"output_format": {"container": "mp3", "sample_rate": 24_000, "bit_rate": 1}}, 400, "bit_rate: 1"),
        ({"model_id": "parrot"}, 404, "parrot"),
        ({"voice": {"mode": "id", "id": "0" * 64}}, 404, "does not exist"),
        ({"generation_config": {"speed": 9}}, 400, "generation_config.speed: 9"),
        ({"version": None}, 400, VERSION),
        ({"version": "2024-11-13"}, 400, "2024-11-13"),
    ],
)
def test_refusals_are_cartesia_s(front, fields, status, named):
    assert named in refusal(ask(front, **fields), status)


def test_broken_body_is_refused(front):
    answer = send(front, path="/tts/bytes", body=b"{", **{"Cartesia-Version": VERSION})
    assert "no JSON" in refusal(answer, 400)


def test_keys(start_front, tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"anna sha256:{digest('sk-anna')}\n")
    front = start_front(api_keys_file=path)
    refusal(ask(front), 401)
    assert ask(front, key="sk-anna").status == 200


def test_server_that_is_busy_before_the_first_audio(front, upstream):
    upstream.error = UnavailableError("upstream:8001: busy; try again later")
    answer = ask(front)
    assert "busy" in refusal(answer, 503)
    assert "retry-after-ms" in answer.headers


def test_page_of_another_site_is_refused(front):
    headers = {"Cartesia-Version": VERSION, "Origin": "http://elsewhere.example"}
    answer = send(front, path="/tts/bytes", body=json.dumps(BODY).encode(), **headers)
    refusal(answer, 403)
