"""OpenAI's own client, the front, and a real tritonserver that speaks with the demo voice."""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import aclosing
from itertools import cycle
from pathlib import Path

import openai
import pytest

from cosyvoice_client import AsyncSpeechClient, SpeechClient, SpeechRequest
from cosyvoice_client.encoders import FORMATS, usual_rate
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server
from decoded import FRAME_SAMPLES, audio_of, decode, events
from front_server import running_front
from raw_http import send
from wire_client import asked, audio_in, open_cartesia, open_omni, words_in

ROOT = Path(__file__).parents[2]
TEXT = "The train to the coast leaves from platform four."
LONG = " ".join([TEXT] * 6)
ASKED = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": TEXT}
SEED = {"seed": 7}
TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def voices(tmp_path_factory):
    return tmp_path_factory.mktemp("voices")


@pytest.fixture(scope="module")
def server(tmp_path_factory, voices):
    folder = tmp_path_factory.mktemp("server")
    texts = [f"checkpoint_dir={ROOT / 'demo_voice'}", f"voices_dir={voices}"]
    texts += ["tensorrt_llm.engine=torch", "token2wav.backend=torch", "token2wav.ode_steps=2"]
    texts += ["cosyvoice2.max_inflight_utterances=8"]  # a slow machine would learn less, and refuse who comes
    settings = Settings.read(texts).resolved(Machine.here())
    write(render(ROOT / "model_repo", settings), folder / "repository")
    ports = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "tritonserver.log",
        probe_interval_s=0.0,
    )
    with Server(folder / "repository", ports) as server:
        yield server


@pytest.fixture(scope="module")
def front(server, voices):
    with running_front(grpc_url=server.grpc_url, voices_dir=voices) as front:
        yield front


@pytest.fixture(scope="module")
def client(front):
    with openai.OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def offline(server):
    """What the offline model says, sample by sample."""

    async def synthesize():
        async with AsyncSpeechClient(server.grpc_url) as client:
            return (await client.synthesize(SpeechRequest(TEXT, **SEED))).samples

    return asyncio.run(synthesize())


@pytest.mark.parametrize(("format", "stream_format"), [*zip(FORMATS, cycle(["audio", "sse"]), strict=False)])
def test_speech_is_as_long_as_offline_to_a_frame(client, offline, format, stream_format):
    with client.audio.speech.with_streaming_response.create(
        **ASKED, response_format=format, stream_format=stream_format, extra_body=SEED
    ) as response:
        body = response.read()
    data = audio_of(events(body)) if stream_format == "sse" else body
    rate = usual_rate(format)
    length = math.ceil(len(offline) * rate / 24_000)
    assert 0 <= len(decode(data, format, rate)) - length < FRAME_SAMPLES[format]


def test_pcm_is_the_offline_audio(client, offline):
    body = client.audio.speech.create(**ASKED, response_format="pcm", extra_body=SEED).content
    assert (
        abs(decode(body, "pcm") - offline).max() <= 4 / 32768
    )  # a step of 16 bits, and the rounding of float32


def test_first_bytes_come_long_before_the_last(client):
    started = time.monotonic()
    with client.audio.speech.with_streaming_response.create(
        **{**ASKED, "input": LONG}, response_format="mp3"
    ) as response:
        pieces = response.iter_bytes()
        assert next(pieces)
        first_s = time.monotonic() - started
        for _ in pieces:
            continue
    assert first_s < (time.monotonic() - started) / 2


def test_leaving_ends_the_speech_on_the_server(server, client):
    with client.audio.speech.with_streaming_response.create(**{**ASKED, "input": LONG}) as response:
        next(response.iter_bytes())
    deadline = time.monotonic() + TIMEOUT_S
    while speaking(server):
        assert time.monotonic() < deadline, "the server still speaks"
        time.sleep(0.05)


def speaking(server):
    """Utterances in progress, by the server's own page of metrics."""
    import re
    import urllib.request

    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=TIMEOUT_S) as page:
        text = page.read().decode()
    return sum(float(number) for number in re.findall(r"^cosyvoice_inflight\w*\{.*\} (\S+)$", text, re.M))


def test_front_is_ready_when_the_server_is(front):
    assert send(front, "GET", "/health/ready").status == 200


def test_home_assistant_s_probe_speaks(client):
    assert client.audio.speech.create(**{**ASKED, "input": "."}).content


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"voice": "nobody"}, openai.NotFoundError, "voice"),
        ({"extra_body": {"language": "klingon"}}, openai.BadRequestError, "language"),
    ],
)
def test_what_only_the_server_knows_is_named(client, fields, error, param):
    with pytest.raises(error) as caught:
        client.audio.speech.create(**{**ASKED, **fields})
    assert caught.value.param == param
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize("voice", ["slt", "rms"])
def test_speakers_of_the_checkpoint_are_voices(client, voice):
    assert client.audio.speech.create(**{**ASKED, "voice": voice}).content


def test_uploaded_voice_speaks_through_the_front_and_through_grpc(server, front, client):
    sent = client.post(
        "/audio/voices",
        cast_to=object,
        body={
            "name": "mine",
            "ref_text": (ROOT / "demo_voice" / "reference.txt").read_text("utf-8").strip(),
            "consent": "I agree that my voice is used in this test.",
        },
        files={"audio_sample": (ROOT / "demo_voice" / "reference.flac").read_bytes()},
        options={"headers": {"Content-Type": "multipart/form-data"}},
    )
    assert sent["id"] == "mine"
    asked = {**ASKED, "voice": "mine"}
    heard = client.audio.speech.create(**asked, response_format="pcm", extra_body=SEED).content

    async def speak():
        samples = []
        request = SpeechRequest(TEXT, voice="mine", **SEED)
        async with AsyncSpeechClient(server.grpc_url) as client, aclosing(client.speak(request)) as chunks:
            async for chunk in chunks:
                samples.append(chunk.samples)
        return samples

    spoken = asyncio.run(speak())
    assert len(heard) == 2 * sum(map(len, spoken))
    client.delete("/audio/voices/mine", cast_to=object)
    with pytest.raises(openai.NotFoundError):
        client.audio.speech.create(**asked)


def test_voice_with_a_name_of_any_script_speaks_by_every_route(server, front, client, voices):
    name = "小明"
    recording = ROOT / "demo_voice" / "reference"
    form = {"name": name, "ref_text": recording.with_suffix(".txt").read_text("utf-8"), "consent": "I agree."}
    sound = recording.with_suffix(".flac").read_bytes()
    multipart = {"headers": {"Content-Type": "multipart/form-data"}}
    client.post("/audio/voices", cast_to=object, body=form, files={"audio_sample": sound}, options=multipart)
    said = {**ASKED, "voice": name, "input": "Yes."}
    heard = client.audio.speech.create(**said, response_format="pcm", extra_body=SEED).content
    request = SpeechRequest("Yes.", voice=name, **SEED)
    spoken = list(SpeechClient(server.grpc_url).speak(request))
    assert len(heard) == 2 * sum(len(chunk.samples) for chunk in spoken)
    assert len(heard) == 2 * len(HttpSpeechClient(server.http_url).synthesize(request).samples)
    with open_cartesia(front) as wire:
        wire.send(asked("Yes.", seed=7, voice={"mode": "id", "id": name}))
        assert len(audio_in(wire.until("done")))
    with open_omni(front) as wire:
        wire.send({"type": "session.config", "response_format": "pcm", "voice": name})
        wire.send({"type": "input.text", "text": "Yes."}, {"type": "input.done"})
        assert wire.until("session.done")[-2]["error"] is False
    with running_front(grpc_url=server.grpc_url, voices_dir=voices, aliases=f"明={name}") as other:
        body = json.dumps(
            {"model": "tts-1", "input": "Yes.", "voice": "明", **SEED, "response_format": "pcm"}
        )
        assert send(other, path="/v1/audio/speech", body=body.encode()).body == heard
    assert client.delete(f"/audio/voices/{name}", cast_to=object)["deleted"]
    with pytest.raises(openai.NotFoundError):
        client.audio.speech.create(**said)


def test_server_is_told_the_request_s_name(client):
    response = client.audio.speech.with_raw_response.create(
        **ASKED, extra_headers={"x-request-id": "named-in-the-test"}
    )
    assert response.headers["x-request-id"] == "named-in-the-test"


def agent_says(*pieces):
    """Messages of an agent to one of Cartesia's contexts, which has as many segments as pieces."""
    return [asked(piece, seed=7, **{"continue": True}) for piece in pieces] + [asked(" ", seed=7)]


def test_cartesia_s_context_speaks_and_times_every_word(front):
    sentences = (f"{TEXT} ", "It is on time, they say. ")
    with open_cartesia(front) as wire:
        wire.send(*agent_says(*sentences))
        messages = wire.until("done")
    words = words_in(messages)
    assert [word for word, _, _ in words] == "".join(sentences).split()
    times = [time for _, start, end in words for time in (start, end)]
    assert times == sorted(times)
    seconds = len(audio_in(messages)) / 24_000
    assert seconds - 1 < times[-1] <= seconds
    assert [each["flush_id"] for each in messages if each["type"] == "flush_done"] == [1, 2]


def test_text_is_spoken_before_it_has_all_come(front):
    words = LONG.split(" ")
    with open_omni(front) as wire:
        wire.send({"type": "session.config", "response_format": "pcm"})
        for word in words:
            wire.send({"type": "input.text", "text": f"{word} "})
        wire.until("audio.start")
        assert wire.receive()  # though no end of the text has been sent
        wire.send({"type": "input.done"})
        rest = wire.until("session.done")
    assert rest[-2]["error"] is False
    assert rest[-2]["total_bytes"] > 2 * 24_000


@pytest.mark.parametrize("leave", ["cancel", "drop"])
def test_leaving_a_context_ends_the_speech_on_the_server(server, front, leave):
    with open_cartesia(front) as wire:
        wire.send(*agent_says(*[f"{TEXT} "] * 6))
        wire.until("chunk")
        if leave == "cancel":
            wire.send({"context_id": "one", "cancel": True})
            wire.until("done")
        else:
            wire.drop()
        deadline = time.monotonic() + TIMEOUT_S
        while speaking(server):
            assert time.monotonic() < deadline, "the server still speaks"
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("fields", "status"), [({"language": "klingon"}, 400), ({"voice": {"mode": "id", "id": "nobody"}}, 404)]
)
def test_context_that_the_server_refuses(front, fields, status):
    with open_cartesia(front) as wire:
        wire.send(asked(**fields))
        error = wire.error()
    assert (error["context_id"], error["status_code"]) == ("one", status)
    assert "127.0.0.1" not in error["message"]
