"""OpenAI's speech API, asked by openai's own client."""

from __future__ import annotations

import base64
import json
import urllib.request
from io import BytesIO

import numpy as np
import openai
import pytest
import soundfile

from cosyvoice_client import SAMPLE_RATE
from cosyvoice_client.encoders import FORMATS, usual_rate
from cosyvoice_runtime.settings.front import OPENAI_VOICES
from decoded import FRAME_SAMPLES, audio_of, decode, events
from fake_upstream import tone
from raw_http import ask, send

CONTENT_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000",
    "g711_ulaw": "audio/basic",
    "g711_alaw": "audio/PCMA;rate=8000",
}
ASKED = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Hello there."}


def stream(client, **asked):
    return client.audio.speech.with_streaming_response.create(**{**ASKED, **asked})


def body_of(client, **asked):
    with stream(client, **asked) as response:
        return b"".join(response.iter_bytes())


def wav_file(samples, rate=SAMPLE_RATE):
    file = BytesIO()
    soundfile.write(file, samples, rate, format="WAV")
    return file.getvalue()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_every_format_in_both_stream_formats(client, upstream, format, stream_format):
    with stream(client, response_format=format, stream_format=stream_format) as response:
        body = b"".join(response.iter_bytes())
    expected = "text/event-stream" if stream_format == "sse" else CONTENT_TYPES[format]
    assert response.headers["content-type"] == expected
    data = audio_of(events(body)) if stream_format == "sse" else body
    rate = usual_rate(format)
    heard = decode(data, format, rate)
    assert 0 <= len(heard) - len(upstream.samples) * rate // SAMPLE_RATE < FRAME_SAMPLES[format]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_first_bytes_leave_with_the_first_chunk(front, client, upstream, format, stream_format):
    import asyncio

    upstream.gates = asyncio.Semaphore(0)
    with stream(client, response_format=format, stream_format=stream_format) as response:
        pieces = response.iter_bytes()
        assert next(pieces)
        assert upstream.active == 1  # it waits in front of its second chunk
        front.do(upstream.gates.release)
        assert b"".join(pieces)
    assert (upstream.active, upstream.cancelled) == (0, 0)


def test_mp3_is_the_default(client):
    with stream(client) as response:
        response.read()
    assert response.headers["content-type"] == "audio/mpeg"


def test_events_end_with_usage(client, upstream):
    found = events(body_of(client, stream_format="sse"))
    assert {event["type"] for event in found[:-1]} == {"speech.audio.delta"}
    assert found[-1] == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 12, "output_tokens": 20, "total_tokens": 32},
        "finish_reason": "stop",
    }


def test_usage_counts_tokens_at_the_servers_own_rate(client, upstream):
    upstream.token_rate = 50
    found = events(body_of(client, stream_format="sse", speed=2.0))
    assert found[-1]["usage"]["output_tokens"] == round(0.8 * 2 * 50)


@pytest.mark.parametrize("stream", [True, False, "true", None, 1])
@pytest.mark.parametrize("format", ["pcm", "wav", "mp3"])
def test_stream_leaves_the_audio_bare(client, format, stream):
    bare = body_of(client, response_format=format)
    assert body_of(client, response_format=format, extra_body={"stream": stream}) == bare


@pytest.mark.parametrize("stream", [True, False])
def test_stream_format_decides_where_it_is_given(client, stream):
    asked = {"response_format": "pcm", "extra_body": {"stream": stream}}
    bare = body_of(client, **asked, stream_format="audio")
    found = events(body_of(client, **asked, stream_format="sse"))
    assert audio_of(found) == bare == body_of(client, response_format="pcm")
    assert found[-1]["type"] == "speech.audio.done"


def test_headers_of_a_speech(client):
    with stream(client, extra_headers={"x-request-id": "mine-1"}, extra_body={"seed": 5}) as response:
        response.read()
    headers = response.headers
    assert headers["x-request-id"] == "mine-1"
    assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-cache")
    assert (headers["x-ai-generated"], headers["x-should-retry"]) == ("true", "false")
    assert (headers["x-seed"], headers["x-audio-sample-rate"]) == ("5", "24000")


@pytest.mark.parametrize("given", ["", "with blank", "x" * 129, "semi;colon"])
def test_request_id_that_could_forge_a_line_of_the_log_is_replaced(client, upstream, given):
    with stream(client, extra_headers={"x-request-id": given}) as response:
        response.read()
    assert response.headers["x-request-id"].startswith("req_")
    assert upstream.request_ids == [response.headers["x-request-id"]]


def test_server_is_told_what_was_asked(client, upstream):
    body_of(
        client,
        voice="anna",
        instructions="Speak slowly.",
        speed=1.5,
        extra_body={"language": "en", "seed": 7, "trim_silence": "both", "unknown": "ignored"},
        extra_headers={"x-request-id": "mine-2"},
    )
    [request] = upstream.requests
    assert (request.text, request.voice, request.reference) == (ASKED["input"], "anna", None)
    assert (request.instruct_text, request.speed) == ("Speak slowly.", 1.5)
    assert (request.language, request.seed, request.trim_silence) == ("en", 7, "both")
    assert upstream.request_ids == ["mine-2"]


def test_silence_is_left_out_as_one_of_three_values_says(front):
    answer = ask(front, trim_silence="end")
    assert (answer.status, answer.error["param"]) == (400, "trim_silence")
    assert "'off', 'start' or 'both'" in answer.error["message"]


def test_request_without_a_seed_gets_a_new_one_each_time(client, upstream):
    for _ in range(2):
        body_of(client)
    first, second = (request.seed for request in upstream.requests)
    assert first != second


@pytest.mark.parametrize("voice", [*OPENAI_VOICES, "default", {"id": "alloy"}])
def test_openai_voices_are_the_default_one(client, upstream, voice):
    body_of(client, voice=voice)
    assert upstream.requests[0].voice is None


def test_aliases_are_a_setting(start_front, open_client, upstream):
    client = open_client(start_front(aliases="alloy=anna,nova=default"))
    for voice in ("alloy", "nova", "ash"):
        body_of(client, voice=voice)
    assert [request.voice for request in upstream.requests] == ["anna", None, "ash"]


@pytest.mark.parametrize("model", ["cosyvoice2", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"])
def test_model_has_the_names_that_clients_use(client, model):
    assert body_of(client, model=model)


@pytest.mark.parametrize("as_url", [False, True])
def test_reference_comes_with_the_request(client, upstream, as_url):
    samples = tone(1.5)
    encoded = base64.b64encode(wav_file(samples)).decode()
    body_of(
        client,
        extra_body={
            "ref_audio": f"data:audio/wav;base64,{encoded}" if as_url else encoded,
            "ref_text": "A tone.",
        },
    )
    [request] = upstream.requests
    assert request.voice is None
    assert (request.reference.text, request.reference.rate) == ("A tone.", SAMPLE_RATE)
    np.testing.assert_allclose(request.reference.samples, samples, atol=1e-4)


@pytest.mark.parametrize("voice", ["", "default", {"id": ""}])
def test_voice_without_a_name_is_the_default_one(client, upstream, voice):
    body_of(client, voice=voice)
    assert upstream.requests[0].voice is None


@pytest.mark.parametrize(
    ("said", "cross_lingual"),
    [
        ({}, True),
        ({"ref_text": " "}, True),
        ({"ref_text": "A tone."}, None),
        ({"instructions": "Whisper."}, None),
    ],
)
def test_recording_whose_words_nobody_says_gives_its_sound_alone(client, upstream, said, cross_lingual):
    encoded = base64.b64encode(wav_file(tone(1.5))).decode()
    body_of(client, extra_body={"ref_audio": encoded, **said})
    assert upstream.requests[0].cross_lingual is cross_lingual


def test_sample_rate_is_as_asked(client, upstream):
    with stream(client, response_format="pcm", extra_body={"sample_rate": 48_000}) as response:
        body = response.read()
    assert response.headers["content-type"] == "audio/pcm;rate=48000"
    assert response.headers["x-audio-sample-rate"] == "48000"
    assert abs(len(body) // 2 - 2 * len(upstream.samples)) <= 2


def test_least_happy_reason_is_told(client, upstream, monkeypatch):
    from cosyvoice_client import AudioChunk

    async def speak(request, request_id="", name=None):
        for reason in ("length", "", "stop"):
            yield AudioChunk(tone(0.1), 0.0, reason)

    monkeypatch.setattr(upstream, "speak", speak)
    assert events(body_of(client, stream_format="sse"))[-1]["finish_reason"] == "length"


def test_models_are_listed_as_clients_read_them(front, client):
    assert [model.id for model in client.models.list()][:2] == ["cosyvoice2", "tts-1"]
    assert client.models.retrieve("tts-1").id == "tts-1"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")
    assert {"id": "tts-1"}.items() <= get(front, "/v1/audio/models")["models"][1].items()


def test_voices_are_listed_as_clients_read_them(front):
    listed = get(front, "/v1/audio/voices?limit=100")
    assert listed["voices"] == listed["data"]
    assert {"default", *OPENAI_VOICES} == {voice["id"] for voice in listed["voices"]}
    assert all(voice["name"] for voice in listed["voices"])


@pytest.mark.parametrize("path", ["/v1/", "/test", "/health", "/health/ready"])
def test_probes_of_clients_are_answered(front, path):
    assert get(front, path) == {"status": "ok"}


@pytest.mark.parametrize("text", [".", "?!", " …\n", "🙂", "❤️", "☀️!", "👨\u200d👩\u200d👧", "\u200b"])
def test_text_without_words_is_a_pause(client, upstream, text):
    """Home Assistant probes with a full stop, which the server would refuse."""
    heard = decode(body_of(client, input=text, response_format="pcm"), "pcm")
    assert len(heard) == round(0.3 * SAMPLE_RATE)
    assert not heard.any()
    assert upstream.requests == []


@pytest.mark.parametrize("text", ["a", "7", "你", "٣", "a.", "1️⃣"])
def test_text_with_a_word_is_spoken(client, upstream, text):
    assert body_of(client, input=text)
    assert [request.text for request in upstream.requests] == [text]


def get(front, path):
    with urllib.request.urlopen(f"{front.url}{path}", timeout=60) as answer:
        return json.load(answer)


def test_field_that_is_null_is_as_none(front, upstream):
    nothing = dict.fromkeys(
        ["voice", "language", "speed", "response_format", "seed", "stream", "sample_rate"]
    )
    body = json.dumps({**ASKED, **nothing}).encode()
    assert send(front, body=body).headers["content-type"] == "audio/mpeg"
    assert send(front, body=json.dumps({**ASKED, "model": None}).encode()).error["param"] == "model"
    assert (upstream.requests[0].speed, upstream.requests[0].language) == (1.0, None)
