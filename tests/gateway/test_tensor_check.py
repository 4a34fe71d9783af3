"""Requests are looked at before tritonserver sees them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from cosyvoice_runtime.audio.audio import MAX_RATE, MAX_SECONDS
from cosyvoice_runtime.gateway.policy import Policy, RefusedError
from cosyvoice_runtime.gateway.request_check import check_generate, check_grpc, check_http
from cosyvoice_runtime.settings import CosyVoice2Settings, ServerSettings

POLICY = Policy(("cosyvoice2",))


def grpc_request(**tensors: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name="cosyvoice2")
    for name, value in tensors.items():
        array = np.atleast_1d(value)
        if array.dtype.kind == "U":
            content = serialize_byte_tensor(np.char.encode(array, "utf-8").astype(np.object_)).item()
            request.inputs.add(name=name, datatype="BYTES", shape=array.shape)
        else:
            content = array.tobytes()
            request.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        request.raw_input_contents.append(content)
    return request


def http_body(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]} | changes
    return json.dumps({"inputs": [tensor]}).encode()


def test_longest_reference_and_longest_texts_fit_into_the_largest_request():
    limit = CosyVoice2Settings.model_fields["max_text_characters"].metadata
    text = "😀" * max(mark.le for mark in limit if hasattr(mark, "le"))
    reference = np.zeros(int(MAX_SECONDS * MAX_RATE), np.float32)
    request = grpc_request(reference_wav=reference, target_text=text, reference_text=text, instruct_text=text)
    check_grpc(request, POLICY)
    assert request.ByteSize() < ServerSettings().max_request_mib << 20


def test_messages_of_a_text_in_pieces_are_looked_at_like_every_request():
    message = grpc_request(utterance_id="x" * 128, text_event="push", target_text="a" * 10_000)
    check_grpc(message, POLICY)
    for index in range(3):
        damaged = service_pb2.ModelInferRequest.FromString(message.SerializeToString())
        damaged.raw_input_contents[index] = b"\xff\xff\xff\xffa"
        with pytest.raises(RefusedError, match=f"{damaged.inputs[index].name}: .* a string is cut off"):
            check_grpc(damaged, POLICY)


def changed(change: Any) -> Any:
    request = grpc_request(x=np.zeros(4, np.float32), text="a")
    change(request)
    return request


BAD_REQUESTS = {
    "model": lambda request: setattr(request, "model_name", "token2wav"),
    "version": lambda request: setattr(request, "model_version", "../1"),
    "long id": lambda request: setattr(request, "id", "x" * 257),
    "negative size": lambda request: request.inputs[0].shape.append(-1),
    "size past 64 bits": lambda request: request.inputs[0].shape.extend([2**62, 2**62]),
    "many dimensions": lambda request: request.inputs[0].shape.extend([1] * 20),
    "short content": lambda request: request.raw_input_contents.__setitem__(0, b"123"),
    "odd content": lambda request: request.raw_input_contents.__setitem__(0, bytes(17)),
    "contents too many": lambda request: request.raw_input_contents.append(b""),
    "contents missing": lambda request: request.raw_input_contents.pop(),
    "contents twice": lambda request: request.inputs[0].contents.fp32_contents.append(1),
    "type": lambda request: setattr(request.inputs[0], "datatype", "FP33"),
    "string cut off": lambda request: request.raw_input_contents.__setitem__(1, b"\xff\xff\xff\xffa"),
    "string without length": lambda request: request.raw_input_contents.__setitem__(1, b"\1"),
    "two strings": lambda request: request.raw_input_contents.__setitem__(1, b"\0\0\0\0" * 2),
    "many inputs": lambda request: [request.inputs.add(name="y") for _ in range(65)],
    "shared input": lambda request: request.inputs[0].parameters["shared_memory_region"].SetInParent(),
    "shared output": lambda request: request.outputs.add().parameters["shared_memory_region"].SetInParent(),
    "classes": lambda request: request.outputs.add().parameters["classification"].SetInParent(),
}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_bad_grpc_request_is_refused_with_field_value_and_limit(kind):
    with pytest.raises(RefusedError, match=r"\w.*: .*(is not accepted; .|is unknown here; .)"):
        check_grpc(changed(BAD_REQUESTS[kind]), POLICY)


def test_longest_id_and_a_tensor_of_nothing_get_through():
    request = grpc_request(x=np.zeros(0, np.float32))
    request.id = "x" * 256
    check_grpc(request, POLICY)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"])
def test_tensor_has_as_many_bytes_as_its_numbers(dtype):
    request = grpc_request(x=np.zeros(9, dtype))
    check_grpc(request, POLICY)
    for content in (request.raw_input_contents[0] + b"x", request.raw_input_contents[0][1:]):
        request.raw_input_contents[0] = content
        with pytest.raises(RefusedError, match=r"9 elements of \w+ are expected"):
            check_grpc(request, POLICY)


def test_tensor_has_a_thousand_and_some_strings_at_most():
    check_grpc(grpc_request(text=np.array(["a"] * 1024)), POLICY)
    with pytest.raises(RefusedError, match=r"text\.shape: 1025 is not accepted; at most 1024 strings"):
        check_grpc(grpc_request(text=np.array(["a"] * 1025)), POLICY)


def test_binary_tensors_of_http_are_measured():
    header = http_body(parameters={"binary_data_size": 8}).replace(b', "data": [1, 2]', b"")
    check_http(header + bytes(8), len(header))
    for body, length in ((header + bytes(4), len(header)), (header + bytes(9), len(header)), (header, 0)):
        with pytest.raises(RefusedError, match="is not accepted"):
            check_http(body, length)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [True]},
        {"shape": "2"},
        {"datatype": 7},
        {"name": None},
        {"data": "12"},
        {"parameters": {"shared_memory_region": "x"}},
        {"parameters": []},
        {"parameters": {"binary_data_size": -1}, "data": None},
    ],
)
def test_bad_tensor_of_http_is_refused(changes):
    with pytest.raises(RefusedError, match="is not accepted"):
        check_http(http_body(**changes), None)


def test_json_that_two_parsers_could_read_differently_is_refused():
    for body in (b'{"a": 1, "a": 2}', b"[" * 60_000, b"\xff", b"null", b""):
        with pytest.raises(RefusedError, match=r"a JSON object|an object is expected"):
            check_generate(body)
