"""Frames: what a model host and its callers send each other, a header and tensors.

A frame is two lengths (little-endian, 4 bytes each), a header in JSON and the raw content of its tensors, one
after another. All four are filled up to multiples of 8 bytes, so that a tensor is read where it lies. The
header's ``tensors`` says name, type, shape and length in bytes of each. Texts are Triton's ``BYTES``: 4 bytes
of length before each.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput

Array = npt.NDArray[Any]
Answer = Callable[[bytes, bool], None]
"""A function that sends a frame to the caller, and says whether it is the last one of the call."""

LENGTHS = struct.Struct("<II")
LENGTH = struct.Struct("<I")
STEP = 8
"""Header and tensors begin at multiples of it, the size of the largest number of a tensor."""
MOST_HEADER = 1 << 20
MOST_CONTENT = 1 << 30
"""The largest ``server.max_request_mib``."""
MOST_AXES, MOST_TEXTS = 8, 1 << 16
"""The limits of a tensor: reading it takes the loop that serves all callers no longer than its bytes do."""
TEXT = np.dtype(np.object_).str
TYPES = {
    dtype.str: dtype for dtype in map(np.dtype, ("?", *"bBhHiIqQ", np.float16, np.float32, np.float64, "O"))
}
"""The types of tensors by their names in a header, which are numpy's."""
_write_header = json.JSONEncoder(separators=(",", ":")).encode


class FrameError(CosyVoiceError):
    """The bytes are no frame, and it is unknown where the next one begins."""


class Frame(NamedTuple):
    """A frame that was read: its header, and the bytes of its tensors."""

    header: dict[str, Any]
    content: memoryview


class FrameReader:
    """Takes bytes as they come, and gives frames."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self._wanted = LENGTHS.size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames that are complete with this data; the caller reads them to the end.

        Raises:
            FrameError: the next one has lengths beyond the limits, or a header that is no JSON object.
        """
        self._parts.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return
        data = b"".join(self._parts)
        offset = 0
        while len(data) - offset >= (wanted := _frame_size(data, offset)):
            yield _frame(memoryview(data)[offset : offset + wanted])
            offset += wanted
        self._wanted = wanted
        self._held = len(data) - offset
        self._parts = [data[offset:]] if self._held else []


def _frame_size(data: bytes, offset: int) -> int:
    """Bytes of the frame that begins at the offset, or of its two lengths if they are incomplete."""
    if len(data) - offset < LENGTHS.size:
        return LENGTHS.size
    header, content = LENGTHS.unpack_from(data, offset)
    for name, length, most in (("header", header, MOST_HEADER), ("content", content, MOST_CONTENT)):
        if length > most or length % STEP:
            raise FrameError(
                f"a frame's {name}: {length} bytes are not accepted; a multiple of {STEP} up to {most}"
            )
    return LENGTHS.size + header + content


def _frame(data: memoryview) -> Frame:
    end = LENGTHS.size + LENGTHS.unpack_from(data)[0]
    try:
        header = json.loads(str(data[LENGTHS.size : end], "utf-8"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame's header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError(f"a frame's header: {type(header).__name__} is not accepted; an object is expected")
    return Frame(header, data[end:])


def write_frame(header: Mapping[str, Any], tensors: Mapping[str, Array] | None = None) -> bytes:
    """The bytes of a frame.

    Args:
        tensors: arrays of the types in :data:`TYPES`, texts as bytes or str; None for a header alone.

    Raises:
        InvalidInput: a tensor has another type, or the frame would be beyond the limits.
    """
    specs, parts = [], [b"", b""]
    for name, array in (tensors or {}).items():
        content, size = _content(name, array)
        specs.append((name, array.dtype.str, array.shape, size))
        parts += content, bytes(-size % STEP)
    said = _write_header(header if tensors is None else {**header, "tensors": specs}).encode()
    parts[1] = said + b" " * (-len(said) % STEP)
    length = sum(size + -size % STEP for *_, size in specs)
    for what, size, most in (("header", len(parts[1]), MOST_HEADER), ("tensors", length, MOST_CONTENT)):
        if size > most:
            raise InvalidInput(what, size, f"a frame has room for {most} bytes of it")
    parts[0] = LENGTHS.pack(len(parts[1]), length)
    return b"".join(parts)


def _content(name: str, array: Array) -> tuple[Any, int]:
    """The content of an array, to be joined, and its length in bytes."""
    if array.dtype.str not in TYPES:
        raise InvalidInput(name, array.dtype.str, f"a tensor's type is one of {', '.join(TYPES)}")
    if array.dtype.str != TEXT:
        return np.ascontiguousarray(array), array.nbytes
    texts = b"".join(_text(name, text) for text in array.reshape(-1).tolist())
    return texts, len(texts)


def _text(name: str, text: Any) -> bytes:
    try:
        text = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise InvalidInput(name, ascii(text), f"a text that UTF-8 has: {error.reason}") from None
    if not isinstance(text, bytes):
        raise InvalidInput(name, text, "a text is expected")
    return LENGTH.pack(len(text)) + text


def read_tensors(frame: Frame) -> dict[str, Array]:
    """Read-only arrays by name, numbers where they lie in the frame; an InvalidInput if the header is
    wrong."""
    specs, found, offset = frame.header.get("tensors", []), {}, 0
    try:
        for name, code, shape, size in specs:
            if not isinstance(name, str) or name in found:
                raise InvalidInput("tensors", name, "each has a name of its own")
            if not 0 <= size <= len(frame.content) - offset:
                raise InvalidInput(name, size, f"{len(frame.content) - offset} bytes are left of the content")
            found[name] = _tensor(name, code, shape, frame.content[offset : offset + size])
            offset += size + -size % STEP
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "tensors", specs, f"name, type, shape and size of each are expected: {error}"
        ) from None
    if offset != len(frame.content):
        raise InvalidInput("tensors", offset, f"the content has {len(frame.content)} bytes")
    return found


def _tensor(name: str, code: str, shape: list[int], content: memoryview) -> Array:
    dtype = TYPES.get(code)
    if dtype is None:
        raise InvalidInput(name, code, f"a tensor's type is one of {', '.join(TYPES)}")
    if len(shape) > MOST_AXES:
        raise InvalidInput(name, f"{len(shape)} axes", f"a tensor has {MOST_AXES} at most")
    count = math.prod(shape)
    try:
        flat = _texts(count, content) if code == TEXT else np.frombuffer(content, dtype)
        if flat.size != count:
            raise ValueError(f"those are {flat.size} numbers")
        return flat.reshape(shape)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise InvalidInput(name, f"{code} {shape}", f"{len(content)} bytes came: {error}") from None


def _texts(count: int, content: memoryview) -> Array:
    if not 0 <= count * LENGTH.size <= len(content) or count > MOST_TEXTS:
        raise ValueError(f"{count} texts are said to be in it; {MOST_TEXTS} are the most")
    texts, offset = np.empty(count, np.object_), 0
    for number in range(count):
        [length] = LENGTH.unpack_from(content, offset)
        offset += LENGTH.size + length
        if offset > len(content):
            raise ValueError(f"text {number} has {length} bytes")
        texts[number] = bytes(content[offset - length : offset])
    if offset != len(content):
        raise ValueError(f"{len(content) - offset} bytes after the last text")
    texts.flags.writeable = False
    return texts
