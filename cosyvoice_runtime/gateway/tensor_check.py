"""The check of a request's tensors before tritonserver sees them, whichever model they are for.

Names, types and dimensions are compared with the model's configuration by tritonserver; this looks at what
tritonserver itself may stumble over: sizes, contents that don't fit them, and memory that isn't the client's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cosyvoice_runtime.gateway.policy import Policy, invalid

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
    """Check a ``ModelInferRequest``.

    Raises:
        RefusedError: naming the field.
    """
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
    """Check the body of an inference request, and return its JSON.

    Args:
        header_bytes: length of the JSON before the binary tensors; None if there are none.

    Raises:
        RefusedError: naming the field.
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
    """Parse an object without repeated keys, which parsers read differently.

    Raises:
        RefusedError: the text is not such an object.
    """
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
    """Check the body of ``generate`` or ``generate_stream``, and return its JSON.

    Raises:
        RefusedError: naming the field.
    """
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
    for field, tensors in (("inputs", inputs), ("outputs", outputs)):
        if len(tensors) > MAX_TENSORS:
            raise invalid(field, len(tensors), f"at most {MAX_TENSORS}")


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
    """Check an input, and return the binary bytes that are left for later inputs.

    Returns: the binary tensors that are left for later inputs.
    """
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
        raise invalid(f"{name}.binary_data_size", size, f"0 to {len(binary)} and no data beside it")
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
        found = _count_strings(name, content, elements)
    elif datatype in ITEM_BYTES:
        found, rest = divmod(len(content), ITEM_BYTES[datatype])
        found += bool(rest)
    else:
        raise invalid(f"{name}.datatype", datatype, f"one of {', '.join([*ITEM_BYTES, STRINGS])}")
    if found != elements:
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
