"""The fields of a protobuf message, counted in its bytes before it is parsed.

A field of two bytes becomes an object of a hundred, so a message is looked at before protobuf reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.request_check import (
    MAX_DIMENSIONS,
    MAX_PARAMETERS,
    MAX_STRINGS,
    MAX_TENSORS,
)

MAX_FIELDS = 4096
"""The most fields of a message, nested ones included; a request with every input has about a hundred."""
MAX_UNKNOWN = 16
MAX_INTEGERS = 65_536
"""The most integers of a tensor whose content is a list: one byte each may become eight."""
MAX_COUNTS = {
    "inputs": MAX_TENSORS,
    "outputs": MAX_TENSORS,
    "raw_input_contents": MAX_TENSORS,
    "parameters": MAX_PARAMETERS,
    "shape": MAX_DIMENSIONS,
    "bytes_contents": MAX_STRINGS,
}
"""The limits of repeated fields, by their names."""
SIZES = {FieldDescriptor.TYPE_FLOAT: 4, FieldDescriptor.TYPE_DOUBLE: 8}
"""The bytes of fixed-size packed numbers; varints differ in size."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""The wire types of a field."""
LAST_BYTES = bytes(range(128))
"""The bytes that can end a varint."""


class WireField(NamedTuple):
    """The description of a field.

    Attributes:
        limit: how often it may occur; None for no limit.
        size: bytes of each number in a packed field; 0 for varints.
        kind: the message type of its content, if it has one.
    """

    name: str
    limit: int | None
    packed: bool
    size: int
    kind: Descriptor | None


UNKNOWN = WireField("unknown fields", MAX_UNKNOWN, packed=False, size=0, kind=None)


def check_fields(message: bytes, kind: Descriptor) -> None:
    """Refuse bytes that are no message of a type, or one with too many fields.

    Raises:
        RefusedError: the text names the field, its count and the limit.
    """
    try:
        _Look().at(memoryview(message), kind, "")
    except IndexError:
        raise RefusedError("INVALID_ARGUMENT", f"the message is no {kind.name}") from None


class _Look:
    """The count of one message's fields."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def at(self, content: memoryview, kind: Descriptor, path: str) -> None:
        known = _fields_of(kind)
        counts: Counter[str] = Counter()
        for number, wire, value in _fields(content):
            self._left -= 1
            if self._left < 0:
                raise _too_many("message", MAX_FIELDS + 1, "fields", MAX_FIELDS)
            field = known.get(number, UNKNOWN)
            counts[field.name] += _elements(field, value) if wire == LENGTH else 1
            if field.limit is not None and counts[field.name] > field.limit:
                raise _too_many(path + field.name, counts[field.name], "elements", field.limit)
            if field.kind is not None and wire == LENGTH:
                self.at(value, field.kind, f"{path}{field.name}.")


@lru_cache
def _fields_of(kind: Descriptor) -> dict[int, WireField]:
    return {field.number: _field(field) for field in kind.fields}


def _field(field: Any) -> WireField:
    repeated = field.is_repeated
    numbers = field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
    packed = repeated and numbers and field.message_type is None
    size = SIZES.get(field.type, 0) if packed else 0
    limit = MAX_COUNTS.get(field.name, None if size else MAX_INTEGERS) if repeated else 1
    return WireField(field.name, limit, packed, size, field.message_type)


def _elements(field: WireField, value: memoryview) -> int:
    if not field.packed:
        return 1
    if field.size:
        return len(value) // field.size
    return len(value) - len(bytes(value).translate(None, LAST_BYTES))


def _fields(content: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """The number, wire type and bytes of each field; an IndexError if the bytes are no protobuf fields."""
    position = 0
    while position < len(content):
        tag, start = _integer(content, position)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            _, position = _integer(content, start)
        elif wire == LENGTH:
            length, start = _integer(content, start)
            position = start + length
        elif wire in (FIXED32, FIXED64):
            position = start + (4 if wire == FIXED32 else 8)
        else:
            raise IndexError("a way of writing that no field here has")
        if position > len(content):
            raise IndexError("a field is cut off")
        yield number, wire, content[start:position]


def _integer(content: memoryview, position: int) -> tuple[int, int]:
    """A varint, and the offset after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise IndexError("an integer has more than ten bytes")


def _too_many(field: str, count: int, what: str, limit: int) -> RefusedError:
    return RefusedError("INVALID_ARGUMENT", f"{field}: {count} {what} or more; at most {limit} are accepted")
