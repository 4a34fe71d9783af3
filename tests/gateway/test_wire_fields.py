"""Fields of a request are counted in its bytes, before protobuf makes objects of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from gateway_process import Gateway, gateway_process
from tritonclient.grpc import service_pb2

from cosyvoice_runtime.gateway.policy import INFER, SERVICE, STREAM_INFER, RefusedError
from cosyvoice_runtime.gateway.wire_fields import MAX_FIELDS, MAX_INTEGERS, check_fields

MIB = 2**20
LIMIT_MIB = 24
TIMEOUT_S = 120.0
REQUEST = service_pb2.ModelInferRequest
EMPTY = b"\x00"


def field(number: int, content: bytes) -> bytes:
    """A field with its length, as protobuf writes it."""
    length, size = len(content), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def of_input(content: bytes) -> bytes:
    return field(5, content)


def refusal(message: bytes) -> str:
    with pytest.raises(RefusedError) as caught:
        check_fields(message, REQUEST.DESCRIPTOR)
    assert caught.value.status == "INVALID_ARGUMENT"
    return str(caught.value)


TOO_MANY = {
    "inputs": (lambda count: field(5, b"") * count, 64),
    "outputs": (lambda count: field(6, b"") * count, 64),
    "raw_input_contents": (lambda count: field(7, b"") * count, 64),
    "parameters": (lambda count: field(4, b"") * count, 16),
    "inputs.parameters": (lambda count: of_input(field(4, b"") * count), 16),
    "outputs.parameters": (lambda count: field(6, field(2, b"") * count), 16),
    "inputs.shape": (lambda count: of_input(field(3, EMPTY * count)), 8),
    "inputs.contents.bool_contents": (
        lambda count: of_input(field(5, field(1, b"\1" * count))),
        MAX_INTEGERS,
    ),
    "inputs.contents.int_contents": (lambda count: of_input(field(5, field(2, EMPTY * count))), MAX_INTEGERS),
    "inputs.contents.uint64_contents": (
        lambda count: of_input(field(5, field(5, b"\x80\x01" * count))),
        MAX_INTEGERS,
    ),
    "inputs.contents.bytes_contents": (lambda count: of_input(field(5, field(8, b"") * count)), 1024),
    "id": (lambda count: field(3, b"a") * count, 1),
    "inputs.name": (lambda count: of_input(field(1, b"a") * count), 1),
    "parameters.value.string_param": (lambda count: field(4, field(2, field(3, b"a") * count)), 1),
    "unknown fields": (lambda count: b"\x78\x01" * count, 16),
}
"""Fields with the bytes of so many, and how many may come."""


@pytest.mark.parametrize("name", TOO_MANY)
def test_as_many_as_the_limit_get_through_and_one_more_is_refused_by_name_count_and_limit(name):
    make, limit = TOO_MANY[name]
    message = make(limit)
    check_fields(message, REQUEST.DESCRIPTOR)
    REQUEST.FromString(message)
    text = refusal(make(limit + 1))
    assert text == f"{name}: {limit + 1} elements or more; at most {limit} are accepted"


def test_integers_that_are_not_packed_count_alike():
    assert refusal(of_input(b"\x18\x00" * 9)).startswith("inputs.shape: 9 elements")
    assert refusal(of_input(field(3, EMPTY * 5) * 2)).startswith("inputs.shape: 10 elements")


def test_numbers_that_take_no_more_memory_than_bytes_are_limited_by_these_alone():
    request = REQUEST(model_name="m")
    request.inputs.add(name="x", datatype="FP32").contents.fp32_contents.extend([0.5] * 480_000)
    check_fields(request.SerializeToString(), REQUEST.DESCRIPTOR)


def test_fields_of_all_parts_count_together():
    strings = of_input(field(5, field(8, b"") * 1024))
    assert refusal(strings * 4).startswith(f"message: {MAX_FIELDS + 1} fields or more")
    left = MAX_FIELDS - 3 * (1024 + 2) - 2  # an input and its contents are fields, too
    check_fields(strings * 3 + of_input(field(5, field(8, b"") * left)), REQUEST.DESCRIPTOR)
    refusal(strings * 3 + of_input(field(5, field(8, b"") * (left + 1))))


NO_FIELDS = {
    "no length": b"\x2a",
    "cut off": b"\x2a\x05a",
    "cut off by a byte": b"\x1a\x02a",
    "no end": b"\x80" * 11,
    "group": b"\x0b\x0c",
    "four bytes": b"\x0d\0\0",
    "eight bytes": b"\x09\0\0\0\0",
    "long": b"\x2a\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("kind", NO_FIELDS)
def test_bytes_that_are_no_fields_are_no_message(kind):
    assert refusal(NO_FIELDS[kind]) == "the message is no ModelInferRequest"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway_process("grpc", tmp_path_factory.mktemp("gateway"), request_mib=LIMIT_MIB) as process:
        yield process


def most_mib(process: Gateway) -> float:
    """Most memory that a process has had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) / 1024


FLOODS: dict[str, Callable[[int], bytes]] = {
    "inputs": lambda size: field(5, b"") * (size // 2),
    "shape": lambda size: of_input(field(3, EMPTY * (size - 16))),
    "strings": lambda size: of_input(field(5, field(8, b"") * (size // 2 - 16))),
    "integers": lambda size: of_input(field(5, field(3, EMPTY * (size - 32)))),
}


@pytest.mark.parametrize("method", [INFER, STREAM_INFER])
def test_three_floods_at_once_take_a_few_times_what_they_weigh(gateway, method):
    size = LIMIT_MIB * MIB - MIB
    before = most_mib(gateway)

    def ask(make: Callable[[int], bytes]) -> str:
        with grpc.insecure_channel(gateway.address, [("grpc.max_send_message_length", -1)]) as channel:
            message = field(1, b"m") + make(size)
            if method == INFER:
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(method)(message, timeout=TIMEOUT_S)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                return str(caught.value.details())
            [answer] = channel.stream_stream(method)(iter([message]), timeout=TIMEOUT_S)
            return str(service_pb2.ModelStreamInferResponse.FromString(answer).error_message)

    def texts_of(floods: list[Callable[[int], bytes]]) -> list[str]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(ask, floods))

    assert all("; at most" in text for make in FLOODS.values() for text in texts_of([make] * 3))
    assert most_mib(gateway) - before < 3 * 8 * LIMIT_MIB


def test_question_that_is_no_inference_is_small(gateway):
    def answer(method: str, message: bytes) -> Any:
        with grpc.insecure_channel(gateway.address) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{SERVICE}/{method}")(message, timeout=TIMEOUT_S)
        return caught.value

    for method in ("ServerLive", "ModelStatistics", "ModelConfig"):
        refused = answer(method, field(1, bytes(MIB)))
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.details() == "message: larger than 65536 bytes, the limit of all but inference"
    largest = field(15, bytes(65_532))
    assert len(largest) == 65_536
    assert answer("ServerLive", largest).code() is grpc.StatusCode.UNAVAILABLE
    assert answer("ServerLive", largest + b"\0").code() is grpc.StatusCode.RESOURCE_EXHAUSTED
