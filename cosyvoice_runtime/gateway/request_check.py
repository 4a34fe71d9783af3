"""A client's request: the check of its tensors, and the facts by which it is admitted and logged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cosyvoice_runtime.gateway.policy import Policy, invalid
from cosyvoice_runtime.process.headers import CLIENT_HEADER

MAX_TENSORS = 64
MAX_PARAMETERS = 16
MAX_ID_LENGTH = 256
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 2**31 - 1
MAX_STRINGS = 1024
"""The most strings of a tensor; the models' tensors have one."""
ITEM_BYTES = {
    "BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2,
    "UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8,
}  # fmt: skip
MARKS = (b"[", b"{", b":")
MAX_MARKS = 65_536
"""The most lists, objects and keys in JSON, which take far more memory than numbers."""
STRINGS = "BYTES"
LENGTH_BYTES = 4


def check_grpc(request: Any, policy: Policy) -> None:
    """Check a ``ModelInferRequest``; a RefusedError names the field."""
    policy.check_model(request.model_name, request.model_version)
    _check_id(request.id)
    _check_parameters(request.parameters)
    _check_counts(request.inputs, request.outputs)
    for tensor in (*request.inputs, *request.outputs):
        _check_no_parameters(tensor.name, tensor.parameters)
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid("raw_input_contents", len(raw), f"one for each of {len(request.inputs)} inputs")
    for index, tensor in enumerate(request.inputs):
        elements = _elements(tensor.name, tensor.shape)
        if raw:
            if tensor.HasField("contents"):
                raise invalid(tensor.name, "contents", "raw_input_contents hold the tensors already")
            _check_content(tensor.name, tensor.datatype, elements, raw[index])


def check_http(body: bytes, header_bytes: int | None) -> dict[str, Any]:
    """Check an inference request's body, and return its JSON; a RefusedError names the field.

    Args:
        header_bytes: length of the JSON before the binary tensors; None if there are none.
    """
    if header_bytes is not None and not 0 < header_bytes <= len(body):
        raise invalid("Inference-Header-Content-Length", header_bytes, f"1 to {len(body)} are expected")
    request = read_json(body if header_bytes is None else body[:header_bytes])
    binary = memoryview(body)[len(body) if header_bytes is None else header_bytes :]
    _check_id(_typed("id", request.get("id", ""), str))
    _check_parameters(_typed("parameters", request.get("parameters", {}), dict))
    inputs = _typed("inputs", request.get("inputs", []), list)
    outputs = _typed("outputs", request.get("outputs", []), list)
    _check_counts(inputs, outputs)
    for tensor in outputs:
        _check_output(_typed("outputs", tensor, dict))
    for tensor in inputs:
        binary = _check_input(_typed("inputs", tensor, dict), binary)
    if binary:
        raise invalid("binary tensors", f"{len(binary)} bytes", "they belong to no input")
    return request


def read_json(text: bytes) -> dict[str, Any]:
    """Parse an object, and refuse one with repeated keys, which parsers read differently."""
    marks = sum(map(text.count, MARKS))
    if marks > MAX_MARKS:
        raise invalid("body", f"{marks} lists, objects and keys", f"at most {MAX_MARKS}")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise invalid("body", reason, "a JSON object is expected") from None
    return _typed("body", value, dict)


def check_generate(body: bytes) -> dict[str, Any]:
    """Check the body of ``generate`` or ``generate_stream``, and return its JSON; a RefusedError names the
    field."""
    request = read_json(body)
    _check_id(_typed("id", request.get("id", ""), str))
    _check_parameters(_typed("parameters", request.get("parameters", {}), dict))
    if len(request) > MAX_TENSORS:
        raise invalid("body", f"{len(request)} fields", f"at most {MAX_TENSORS}")
    return request


def _check_id(name: str) -> None:
    if len(name) > MAX_ID_LENGTH:
        raise invalid("id", name, f"at most {MAX_ID_LENGTH} characters")


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    if len(parameters) > MAX_PARAMETERS:
        raise invalid("parameters", len(parameters), f"at most {MAX_PARAMETERS}")


def _check_counts(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    for name, tensors in (("inputs", inputs), ("outputs", outputs)):
        if len(tensors) > MAX_TENSORS:
            raise invalid(name, len(tensors), f"at most {MAX_TENSORS}")


def _check_no_parameters(name: str, parameters: Iterable[str], known: frozenset[str] = frozenset()) -> None:
    """Refuse parameters of tensors, which could name shared memory or ask for a classification."""
    for parameter in parameters:
        if parameter not in known:
            raise invalid(f"{name}.parameters", parameter, "tensors come and go with the request")


def _check_output(tensor: dict[str, Any]) -> None:
    name = _typed("outputs.name", tensor.get("name"), str)
    parameters = _typed(f"{name}.parameters", tensor.get("parameters", {}), dict)
    _check_no_parameters(name, parameters, frozenset({"binary_data"}))
    _typed(f"{name}.binary_data", parameters.get("binary_data", False), bool)


def _check_input(tensor: dict[str, Any], binary: memoryview) -> memoryview:
    """Check an input, and return the binary bytes that are left for later inputs."""
    name = _typed("inputs.name", tensor.get("name"), str)
    elements = _elements(name, _typed(f"{name}.shape", tensor.get("shape"), list))
    datatype = _typed(f"{name}.datatype", tensor.get("datatype"), str)
    parameters = _typed(f"{name}.parameters", tensor.get("parameters", {}), dict)
    _check_no_parameters(name, parameters, frozenset({"binary_data_size"}))
    size = parameters.get("binary_data_size")
    if size is None:
        _typed(f"{name}.data", tensor.get("data"), list)
        return binary
    if "data" in tensor or type(size) is not int or not 0 <= size <= len(binary):
        raise invalid(f"{name}.binary_data_size", size, f"0 to {len(binary)} and no data as well")
    _check_content(name, datatype, elements, binary[:size])
    return binary[size:]


def _elements(name: str, shape: Iterable[Any]) -> int:
    sizes = list(shape)
    if len(sizes) > MAX_DIMENSIONS or any(type(size) is not int or size < 0 for size in sizes):
        raise invalid(f"{name}.shape", sizes, f"at most {MAX_DIMENSIONS} whole numbers from 0")
    elements = math.prod(sizes)
    if elements > MAX_ELEMENTS or any(size > MAX_ELEMENTS for size in sizes):
        raise invalid(f"{name}.shape", sizes, f"at most {MAX_ELEMENTS} elements")
    return elements


def _check_content(name: str, datatype: str, elements: int, content: bytes | memoryview) -> None:
    if datatype == STRINGS:
        if elements > MAX_STRINGS:
            raise invalid(f"{name}.shape", elements, f"at most {MAX_STRINGS} strings")
        fits = _count_strings(name, content, elements) == elements
    elif datatype in ITEM_BYTES:
        fits = len(content) == elements * ITEM_BYTES[datatype]
    else:
        raise invalid(f"{name}.datatype", datatype, f"one of {', '.join([*ITEM_BYTES, STRINGS])}")
    if not fits:
        raise invalid(name, f"{len(content)} bytes", f"{elements} elements of {datatype} are expected")


def _count_strings(name: str, content: bytes | memoryview, limit: int) -> int:
    """The number of length-prefixed strings, counted up to one above the limit."""
    count = position = 0
    while position < len(content) and count <= limit:
        length = int.from_bytes(content[position : position + LENGTH_BYTES], "little")
        position += LENGTH_BYTES + length
        count += 1
    if position > len(content):
        raise invalid(name, f"{len(content)} bytes", "a string is cut off")
    return count


def _typed(field: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise invalid(field, value, f"{KINDS[kind]} is expected")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


KINDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}
"""The names of JSON's types."""


EVENT = "text_event"
OPEN = "open"
TEXT, VOICE, UTTERANCE, TURNS = "target_text", "voice", "utterance_id", "turns"
LENGTH_BYTES = 4
OPEN_BYTES = len(OPEN).to_bytes(4, "little") + OPEN.encode()
"""The serialised tensor of this one string."""


@dataclass(frozen=True)
class UtteranceRequest:
    """The facts of one request.

    Attributes:
        model: the model that it calls.
        client: the client's name from a header or a parameter, if there is one.
        begins: whether it begins an utterance; other messages belong to one in progress.
        request_id: Triton's, if it has one.
        voice: the named voice; None without one, or if a binary HTTP tensor holds it.
        characters: characters of its text; None if a binary HTTP tensor holds it, or if it has turns.
        elsewhere: whether the client asks another server when it is refused.
        utterance: the id of an utterance whose text comes in pieces, if it can be read.
    """

    model: str
    client: str | None
    begins: bool = True
    request_id: str = field(default="", compare=False)
    voice: str | None = field(default=None, compare=False)
    characters: int | None = field(default=None, compare=False)
    elsewhere: bool = False
    utterance: str | None = field(default=None, compare=False)

    @classmethod
    def of_grpc(cls, request: Any, header: str | None) -> UtteranceRequest:
        """The facts of a checked ``ModelInferRequest``."""
        client = header
        if client is None and request.parameters:
            client = _name_in({key: _value(chosen) for key, chosen in request.parameters.items()})
        texts = _texts_grpc(request)
        voice, characters = _spoken(texts)
        opens, utterance = _opens_grpc(request), texts.get(UTTERANCE)
        return cls(request.model_name, client, opens, request.id, voice, characters, utterance=utterance)

    @classmethod
    def of_infer(cls, model: str, request: Mapping[str, Any], header: str | None) -> UtteranceRequest:
        """The facts of an ``infer`` body, which has no text in pieces; the model refuses one that has."""
        client = _name_in(request.get("parameters", {})) if header is None else header
        inputs = request.get("inputs", ())
        voice, characters = _spoken({tensor.get("name"): tensor.get("data") for tensor in inputs})
        opens = all(tensor.get("name") != EVENT for tensor in inputs)
        return cls(model, client, opens, request.get("id", ""), voice, characters)

    @classmethod
    def of_generate(cls, model: str, request: Mapping[str, Any], header: str | None) -> UtteranceRequest:
        """The facts of a ``generate`` or ``generate_stream`` body."""
        client = _name_in(request) if header is None else header
        opens = EVENT not in request or request[EVENT] in (OPEN, [OPEN])
        utterance = _text(request.get(UTTERANCE))
        return cls(model, client, opens, str(request.get("id", "")), *_spoken(request), utterance=utterance)


def _spoken(inputs: Mapping[Any, Any]) -> tuple[str | None, int | None]:
    """The voice and the number of characters, if they can be read."""
    text = None if TURNS in inputs else _text(inputs.get(TEXT))
    return _text(inputs.get(VOICE)), None if text is None else len(text)


def _text(value: Any) -> str | None:
    while isinstance(value, list) and len(value) == 1:
        [value] = value
    return value if isinstance(value, str) else None


def _texts_grpc(request: Any) -> dict[str, str]:
    raw, texts = request.raw_input_contents, {}
    for index, tensor in enumerate(request.inputs):
        if tensor.name in (TEXT, VOICE, UTTERANCE, TURNS):
            data = raw[index][LENGTH_BYTES:] if raw else b"".join(tensor.contents.bytes_contents)
            texts[tensor.name] = data.decode("utf-8", "replace")
    return texts


def _opens_grpc(request: Any) -> bool:
    for index, tensor in enumerate(request.inputs):
        if tensor.name == EVENT:
            raw = request.raw_input_contents
            if raw:
                return bool(raw[index] == OPEN_BYTES)
            return list(tensor.contents.bytes_contents) == [OPEN.encode()]
    return True


def _name_in(parameters: Mapping[str, Any]) -> str | None:
    """The client's name, read as the models read it."""
    names = [value for key, value in parameters.items() if key.lower() == CLIENT_HEADER]
    return str(names[-1]) if names else None


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("parameter_choice")
    return "" if chosen is None else getattr(parameter, chosen)
