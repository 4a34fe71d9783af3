"""Clients that stream and clients that want the whole ask one model of one server, as the reference's do."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from cosyvoice_client import SpeechClient, SpeechRequest
from fake_server import TIMEOUT_S, coded

MODEL = "cosyvoice2"
TEXT = "id=3 chunks=5"
WHOLE = coded(3, 5)


def inputs(kind: Any, text: str, **options: Any) -> list[Any]:
    target = kind.InferInput("target_text", [1, 1], "BYTES")
    target.set_data_from_numpy(np.array([[text]], np.object_), **options)
    return [target]


def samples(result: Any) -> np.ndarray[Any, Any]:
    return (result.as_numpy("waveform").reshape(-1) * 32768).astype(np.int16)


def grpc_whole(server: Any, text: str = TEXT, **options: Any) -> Any:
    with triton.InferenceServerClient(server.grpc_url) as client:
        return client.infer(MODEL, inputs(triton, text), client_timeout=TIMEOUT_S, **options)


def http_whole(server: Any, text: str = TEXT, binary: bool = True, **options: Any) -> Any:
    wanted = [triton_http.InferRequestedOutput("waveform", binary_data=binary)]
    with triton_http.InferenceServerClient(server.http_url, network_timeout=TIMEOUT_S) as client:
        asked = inputs(triton_http, text, binary_data=binary)
        return client.infer(MODEL, asked, outputs=wanted, **options)


def generate(server: Any, path: str) -> dict[str, Any]:
    url = f"http://{server.http_url}/v2/models/{MODEL}/{path}"
    asked = urllib.request.Request(url, json.dumps({"target_text": TEXT, "id": "mine"}).encode())
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        return dict(json.load(answer))


WAYS = {
    "gRPC": lambda server: grpc_whole(server, request_id="mine"),
    "gRPC, with a version": lambda server: grpc_whole(server, request_id="mine", model_version="1"),
    "gRPC, compressed": lambda server: grpc_whole(server, request_id="mine", compression_algorithm="gzip"),
    "HTTP": lambda server: http_whole(server, request_id="mine"),
    "HTTP, JSON": lambda server: http_whole(server, binary=False, request_id="mine"),
    "HTTP, with a version": lambda server: http_whole(server, request_id="mine", model_version="1"),
    "HTTP, gzip": lambda server: http_whole(server, request_id="mine", request_compression_algorithm="gzip"),
    "HTTP, deflate": lambda server: http_whole(
        server, request_id="mine", request_compression_algorithm="deflate"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_unary_call_is_answered_with_the_whole_in_the_models_name(server, way):
    result = WAYS[way](server)
    assert np.array_equal(samples(result), WHOLE)
    response = result.get_response()
    named = (response["model_name"], response["id"]) if "HTTP" in way else (response.model_name, response.id)
    assert named == (MODEL, "mine")


def test_stream_beside_it_has_chunks(server):
    with ThreadPoolExecutor(3) as pool:
        wholes = [pool.submit(call, server) for call in (grpc_whole, http_whole)]
        chunks = list(SpeechClient(server.grpc_url, timeout_s=TIMEOUT_S).speak(SpeechRequest(TEXT)))
    assert len(chunks) == 5
    spoken = np.concatenate([chunk.samples for chunk in chunks])
    assert np.array_equal((spoken * 32768).astype(np.int16), WHOLE)
    for whole in wholes:
        assert np.array_equal(samples(whole.result()), WHOLE)


@pytest.mark.parametrize("path", ["generate", "versions/1/generate"])
def test_generate_has_the_whole(server, path):
    answer = generate(server, path)
    assert answer["model_name"] == MODEL
    assert np.array_equal((np.array(answer["waveform"]) * 32768).astype(np.int16), WHOLE)


def test_id_that_looks_like_a_name_is_left_alone(server):
    name = '"model_name":"cosyvoice2_offline"'
    response = http_whole(server, request_id=name).get_response()
    assert (response["id"], response["model_name"]) == (name, MODEL)


def test_errors_of_a_unary_call_keep_status_and_text(server):
    text = "fail=UNAVAILABLE says=no_room"
    with pytest.raises(InferenceServerException, match="no room") as caught:
        grpc_whole(server, text)
    assert caught.value.status() == "StatusCode.UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="no room") as caught:
        http_whole(server, text)
    assert caught.value.status() == "503"


def test_other_models_and_versions_stay_as_they_were(server):
    with pytest.raises(InferenceServerException, match="version"):
        grpc_whole(server, model_version="7")
    with triton.InferenceServerClient(server.grpc_url) as client:
        assert client.get_model_config(MODEL).config.model_transaction_policy.decoupled
        assert samples(client.infer("cosyvoice2_offline", inputs(triton, TEXT))).size == WHOLE.size
