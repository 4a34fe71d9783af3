"""The one thing that is wrong with a request."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzzing.request import Request, Tensor, reference, valid_request

Change = Callable[[Request, random.Random], None]
NUMBERS = {
    "INT32": (0, -1, 1, 2**31 - 1, -(2**31)),
    "INT64": (0, -1, 2**63 - 1, -(2**63)),
    "UINT64": (0, 1, 2**64 - 1),
    "FP32": (0.0, -0.0, -1.0, 1e-45, 3.4e38, float("nan"), float("inf"), float("-inf"), 0.4999, 2.0001),
    "BOOL": (False, True),
}
TYPES = {"INT32": "<i4", "INT64": "<i8", "UINT64": "<u8", "FP32": "<f4", "BOOL": "?"}
TEXTS = (
    b"", b" ", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"../../etc/passwd", b"{}", b"<|endofprompt|>",
    b"a" * 20_000, b"%s%n", "\u202e\u200b".encode(), "😀".encode() * 300, b"[laughter]" * 50, b"1" * 3000,
    b"\r\n\r\n",
    b"<|im_end|>", b"'; --", b"NaN", b"auto", b"\xf0\x9f", b". . . . !!! ???", "數字１２３".encode(),
)  # fmt: skip
DATATYPES = (
    "FP16",
    "FP64",
    "INT8",
    "UINT32",
    "BF16",
    "BYTES",
    "BOOL",
    "INT64",
    "FP33",
    "",
    "fp32",
    "INVALID",
)
SIZES = (0, -1, 2, 7, 2**31, 2**32, 2**63 - 1)
PARAMETERS = {
    "sequence_id": 1, "sequence_start": True, "sequence_end": True, "priority": 2**40, "timeout": -1,
    "binary_data_output": True, "triton_enable_empty_final_response": True, "headers": "x", "a": "b",
    "triton_": True, "": "", "shared_memory_region": "cosyvoice_1_", "x-client-id": "\0",
}  # fmt: skip
SHARED = {"shared_memory_region": "cosyvoice_1_0", "shared_memory_byte_size": 64, "shared_memory_offset": 0}


def changed_request(chance: random.Random) -> Request:
    """A request that is valid but for one thing."""
    request = valid_request(chance)
    change = chance.choice(CHANGES)
    request.change = change.__name__.removeprefix("_").replace("_", " ")
    change(request, chance)
    return request


def _any(request: Request, chance: random.Random) -> Tensor:
    return chance.choice(request.tensors)


def _nothing(request: Request, chance: random.Random) -> None:
    """Stays valid."""


def _value(request: Request, chance: random.Random) -> None:
    tensor = _any(request, chance)
    request.change = f"value of {tensor.name}"
    if tensor.datatype == "BYTES":
        text = chance.choice(TEXTS)
        tensor.content = len(text).to_bytes(4, "little") + text
        return
    array = np.frombuffer(tensor.content, TYPES[tensor.datatype]).copy()
    if array.size:
        array[chance.randrange(array.size)] = chance.choice(NUMBERS[tensor.datatype])
    tensor.content = array.tobytes()


def _sound(request: Request, chance: random.Random) -> None:
    """A recording of another kind."""
    samples = chance.choice([
        np.zeros(16_000), np.ones(16_000), reference(chance, 0.4), reference(chance, 31),
        1e4 * reference(chance),
        np.full(16_000, np.nan), np.zeros(0), np.ones(1), np.sign(reference(chance)),
    ]).astype(np.float32)  # fmt: skip
    sound = Tensor.of("reference_wav", samples[None])
    request.tensors = [
        one for one in request.tensors if one.name not in ("reference_wav", "reference_wav_len")
    ]
    request.tensors.append(sound)


def _tensor_left_out(request: Request, chance: random.Random) -> None:
    request.tensors.remove(_any(request, chance))


def _tensor_twice(request: Request, chance: random.Random) -> None:
    request.tensors.append(_any(request, chance))


def _tensor_of_no_model(request: Request, chance: random.Random) -> None:
    request.tensors.append(Tensor.of(chance.choice(["x", "", "\0", "a" * 300]), np.zeros((1, 1), np.float32)))


def _name(request: Request, chance: random.Random) -> None:
    _any(request, chance).name = chance.choice(["", "TARGET_TEXT", "a" * 5000, "\n", "waveform"])


def _datatype(request: Request, chance: random.Random) -> None:
    _any(request, chance).datatype = chance.choice(DATATYPES)


def _size(request: Request, chance: random.Random) -> None:
    shape = _any(request, chance).shape
    if shape:
        shape[chance.randrange(len(shape))] = chance.choice(SIZES)


def _dimensions(request: Request, chance: random.Random) -> None:
    tensor = _any(request, chance)
    tensor.shape = chance.choice(
        [[], [1], [1, 1, 1], [1] * 9, [1] * 200, [2, 1], [-1], [0, 0], tensor.shape[1:]]
    )


def _batch_of_two(request: Request, chance: random.Random) -> None:  # noqa: ARG001
    for tensor in request.tensors:
        tensor.shape = [2, *tensor.shape[1:]]
        tensor.content *= 2


def _content_cut(request: Request, chance: random.Random) -> None:
    tensor = _any(request, chance)
    tensor.content = tensor.content[: chance.randrange(len(tensor.content) + 1)]


def _content_longer(request: Request, chance: random.Random) -> None:
    _any(request, chance).content += chance.randbytes(chance.choice([1, 4, 1000]))


def _content_at_random(request: Request, chance: random.Random) -> None:
    tensor = _any(request, chance)
    tensor.content = chance.randbytes(len(tensor.content))


def _parameter_of_a_tensor(request: Request, chance: random.Random) -> None:
    _any(request, chance).parameters = chance.choice([SHARED, {"binary_data_size": 2**40}, {"x": 1}])


def _output(request: Request, chance: random.Random) -> None:
    known = ["waveform", "finish_reason", "output_ids", "prompt_speech_tokens", "prompt_spk_embedding"]
    name = chance.choice([*known, "x", "", "a" * 5000])
    parameters: dict[str, Any] = chance.choice(
        [{}, SHARED, {"classification": 2**31 - 1}, {"binary_data": False}]
    )
    request.outputs = [(name, parameters)] * chance.choice([1, 2, 100])


def _parameter(request: Request, chance: random.Random) -> None:
    names = chance.sample(list(PARAMETERS), chance.choice([1, 2, len(PARAMETERS)]))
    request.parameters = {name: PARAMETERS[name] for name in names}


def _version(request: Request, chance: random.Random) -> None:
    request.version = chance.choice(["1", "2", "-1", "99999999999999999999", "../1", "x", " "])


def _model(request: Request, chance: random.Random) -> None:
    request.model = chance.choice(
        ["", "nobody", "../cosyvoice2", "COSYVOICE2", "a" * 5000, "\0", "cosyvoice2/1"]
    )


def _id(request: Request, chance: random.Random) -> None:
    request.id = chance.choice(["", "x" * 256, "x" * 100_000, "\n", "\0", "💥", "<id_unknown>"])


def _header(request: Request, chance: random.Random) -> None:
    request.headers = chance.choice([
        {"triton_grpc_error": "true"}, {"inference-header-content-length": "99999999999999999999"},
        {"inference-header-content-length": "-1"}, {"content-encoding": "gzip"}, {"content-encoding": "x"},
        {"x-client-id": "a" * 4000}, {"content-type": "text/plain"}, {"accept-encoding": "gzip, deflate"},
        {"transfer-encoding-x": "chunked"}, {"expect": "100-continue"},
    ])  # fmt: skip


def _bytes(request: Request, chance: random.Random) -> None:
    request.garbled = random.Random(chance.getrandbits(64))


CHANGES: tuple[Change, ...] = (
    _nothing, _value, _value, _value, _value, _sound, _tensor_left_out, _tensor_twice, _tensor_of_no_model,
    _name, _datatype, _size, _dimensions, _batch_of_two, _content_cut, _content_longer, _content_at_random,
    _parameter_of_a_tensor, _output, _parameter, _version, _model, _id, _header, _bytes, _bytes,
)  # fmt: skip


def garbled(content: bytes, chance: random.Random) -> bytes:
    """The same bytes but for a few."""
    kind = chance.randrange(5)
    data = bytearray(content)
    if kind == 0:
        return bytes(data[: chance.randrange(len(data) + 1)])
    if kind == 1:
        return chance.randbytes(chance.choice([0, 1, 10, 1000]))
    if kind == 2:
        place = chance.randrange(len(data) + 1)
        return bytes(data[:place] + chance.randbytes(chance.randint(1, 20)) + data[place:])
    if kind == 3:
        return bytes(data[: len(data) // 2]) * 2
    for _ in range(chance.randint(1, 8)):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)
