"""The clients of FunAudioLLM's Triton repository, call by call, against both kinds of deployment."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
import upstream_clients
from speaking import TEXT, assert_same_audio, client, recording, reference, spoken

from cosyvoice_client import SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.supervisor import Server

SECOND = 24_000
WORDS = "a short reference"


@pytest.fixture(scope="module")
def streaming(serve_all, tmp_path_factory) -> Iterator[Server]:
    with serve_all(**{"cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices")}) as server:
        yield server


@pytest.fixture(scope="module")
def offline(serve_all, tmp_path_factory) -> Iterator[Server]:
    texts = {"cosyvoice2.decoupled": "false", "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices")}
    with serve_all(**texts) as server:
        yield server


def test_grpc_client_streams_from_the_default_deployment(streaming):
    asked = upstream_clients.arrays(recording(150), WORDS, TEXT, padding_s=10)
    assert len(upstream_clients.grpc_streaming(streaming.grpc_url, asked)) > SECOND


@pytest.mark.parametrize("mode", ["grpc", "http"])
def test_offline_clients_get_the_whole_utterance_from_the_default_deployment(streaming, mode):
    asked = upstream_clients.arrays(recording(150), WORDS, TEXT)
    if mode == "grpc":
        assert len(upstream_clients.grpc_offline(streaming.grpc_url, asked)) > SECOND
    else:
        assert len(upstream_clients.http(streaming.http_url, asked)) > SECOND


def test_grpc_client_in_mode_offline_gets_the_whole_utterance(offline):
    asked = upstream_clients.arrays(recording(150), WORDS, TEXT, padding_s=1)
    assert len(upstream_clients.grpc_offline(offline.grpc_url, asked)) > SECOND


def test_grpc_client_with_the_cached_speaker_sends_the_text_alone(offline):
    asked = {"target_text": np.array([[TEXT]], np.object_)}
    assert len(upstream_clients.grpc_offline(offline.grpc_url, asked)) > SECOND


def test_http_client_gets_the_whole_utterance(offline):
    asked = upstream_clients.arrays(recording(150), WORDS, TEXT)
    assert len(upstream_clients.http(offline.http_url, asked)) > SECOND


def test_own_clients_speak_with_a_deployment_that_does_not_stream(offline):
    request = SpeechRequest(TEXT, reference(), seed=5)
    [whole] = client(offline).speak(request)
    assert whole.finish_reason == "stop"
    for model in ("cosyvoice2", "cosyvoice2_offline"):
        assert_same_audio(
            HttpSpeechClient(offline.http_url, model).synthesize(request).samples, whole.samples
        )
    assert_same_audio(spoken(offline, request), whole.samples)


def generate(server: Server, model: str, **values: object) -> dict[str, object]:
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/models/{model}/generate", json.dumps(values).encode()
    )
    with urllib.request.urlopen(request, timeout=upstream_clients.TIMEOUT_S) as answer:
        return json.load(answer)


@pytest.mark.parametrize("model", ["cosyvoice2", "cosyvoice2_offline"])
def test_generate_answers_once(streaming, offline, model):
    for server in (streaming, offline):
        assert len(generate(server, model, target_text=TEXT)["waveform"]) > SECOND
