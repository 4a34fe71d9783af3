"""Frames: tensors come back as they went, in whatever pieces; other bytes are refused or read, never more."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cosyvoice_runtime.engine import frames
from cosyvoice_runtime.engine.frames import (
    LENGTHS,
    MOST_CONTENT,
    MOST_HEADER,
    TEXT,
    TYPES,
    Frame,
    FrameError,
    FrameReader,
    read_tensors,
    write_frame,
)
from cosyvoice_runtime.errors import InvalidInput

NUMBERS = [dtype for code, dtype in TYPES.items() if code != TEXT]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
TENSORS = st.dictionaries(
    st.text(max_size=20),
    st.one_of(
        st.sampled_from(NUMBERS).flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)),
        arrays.arrays(np.object_, SHAPES, elements=st.binary(max_size=20)),
    ),
    max_size=5,
)


def read(pieces: Iterable[bytes]) -> list[Frame]:
    reader = FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


def cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """The bytes in pieces of these sizes, and what is left."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def framed(header: object, content: bytes = b"") -> bytes:
    said = header if isinstance(header, bytes) else json.dumps(header).encode()
    said += b" " * (-len(said) % 8)
    return LENGTHS.pack(len(said), len(content)) + said + content


def described(specs: object, content: bytes = b"") -> Frame:
    [frame] = read([framed({"tensors": specs}, content)])
    return frame


@given(st.lists(TENSORS, min_size=1, max_size=3), st.lists(st.integers(0, 100)))
def test_any_tensors_come_back_in_whatever_pieces(sent, sizes):
    data = b"".join(write_frame({"number": number}, tensors) for number, tensors in enumerate(sent))
    came = read(cut(data, sizes))
    assert [frame.header["number"] for frame in came] == [*range(len(sent))]
    for frame, tensors in zip(came, sent, strict=True):
        found = read_tensors(frame)
        assert list(found) == list(tensors)
        for name, array in tensors.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(found[name], array)
            assert not found[name].flags.writeable
            assert found[name].flags.aligned


@given(st.binary(max_size=200), st.lists(st.integers(0, 30)))
@example(framed([]), [])
@example(framed(b"\xff" * 8), [])
@example(framed(b"[" * 100_000), [])
def test_any_bytes_are_refused_or_read(data, sizes):
    try:
        found = read(cut(data, sizes))
    except FrameError:
        return
    assert sum(LENGTHS.size + sum(LENGTHS.unpack_from(data)) for _ in found[:1]) <= len(data)


@given(TENSORS, st.integers(0), st.integers(1, 255), st.booleans())
def test_a_damaged_frame_is_refused_or_read(tensors, place, change, shortened):
    data = bytearray(write_frame({"id": "x"}, tensors))
    data[place % len(data)] ^= change
    if shortened:
        del data[place % len(data)]
    try:
        found = [array for frame in read([bytes(data)]) for array in read_tensors(frame).values()]
    except (FrameError, InvalidInput):
        return
    assert sum(array.nbytes for array in found if array.dtype != np.object_) <= len(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([*TYPES]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
DIMENSIONS = st.lists(st.integers(-2, 3) | st.just(2**70), max_size=3)
SPEC = st.tuples(
    st.sampled_from(["a", "b"]), st.sampled_from([*TYPES, "U", "<f2"]), DIMENSIONS, st.integers(-9, 40)
)


@given(JSON | st.lists(SPEC, max_size=3) | st.lists(st.tuples(JSON, JSON, JSON, JSON), max_size=2),
       st.integers(0, 6), st.randoms(use_true_random=False))  # fmt: skip
@example([["a", "<i4", [-1], 8]], 1, None)
@example([["a", "<i4", [2.0], 8]], 1, None)
@example([["a", "|O", [2**60], 8]], 1, None)
@example([["a", "|i1", [0, 2**70], 0]], 0, None)
def test_any_description_of_tensors_is_refused_or_fits_the_content(specs, steps, random):
    content = bytes(8 * steps) if random is None else random.randbytes(8 * steps)
    try:
        found = read_tensors(described(specs, content))
    except InvalidInput:
        return
    assert sum(array.nbytes for array in found.values() if array.dtype != np.object_) <= len(content)
    assert all(min(array.shape, default=0) >= 0 for array in found.values())


@pytest.mark.parametrize(
    ("specs", "content", "message"),
    [
        ([["a", "<f4", [3], 8]], bytes(8), r"a: '<f4 \[3\]' is not accepted; 8 bytes came: .* 2 numbers"),
        ([["a", "<f4", [-1], 8]], bytes(8), r"a: '<f4 \[-1\]' is not accepted"),
        ([["a", "<M8", [1], 8]], bytes(8), r"a: '<M8' is not accepted; a tensor's type is one of \|b1, "),
        ([["a", "<f4", [4], 16]], bytes(8), r"a: 16 is not accepted; 8 bytes are left of the content"),
        ([["a", "<f4", [2], 8]] * 2, bytes(16), r"tensors: 'a' is not accepted; each has a name of its own"),
        ([], bytes(8), r"tensors: 0 is not accepted; the content has 8 bytes"),
        ([["a", "|O", [2], 8]], b"\1\0\0\0x\0\0\0", r"a: '\|O \[2\]' is not accepted"),
        ([["a", "|O", [1], 8]], b"\xff\0\0\0xyz\0", r"a: .* is not accepted; .* text 0 has 255 bytes"),
        ([["a", "|O", [1], 8]], b"\1\0\0\0xyz\0", r"a: .* is not accepted; .* 3 bytes after the last text"),
        ([["a", "|O", [70_000], 280_000]], bytes(280_000), r"a: .* 70000 texts .*; 65536 are the most"),
        ([["a", "|b1", [1] * 9, 1]], bytes(8), r"a: '9 axes' is not accepted; a tensor has 8 at most"),
        ({"a": 1}, b"", r"tensors: \{'a': 1\} is not accepted; name, type, shape and size"),
    ],
)  # fmt: skip
def test_description_that_does_not_fit_names_field_value_and_limit(specs, content, message):
    with pytest.raises(InvalidInput, match=message):
        read_tensors(described(specs, content))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((MOST_HEADER + 8, 0), f"a frame's header: {MOST_HEADER + 8} bytes are not accepted; a mult"),
        ((8, MOST_CONTENT + 8), f"a frame's content: {MOST_CONTENT + 8} bytes are not accepted"),
        ((7, 0), "a frame's header: 7 bytes are not accepted; a multiple of 8"),
    ],
)  # fmt: skip
def test_lengths_beyond_the_limits_are_refused_before_anything_is_kept(lengths, message):
    with pytest.raises(FrameError, match=message):
        read([LENGTHS.pack(*lengths)])


def test_tensor_of_another_type_is_not_sent():
    for array in (np.array(["x"]), np.array([1], ">i4"), np.array([1j])):
        with pytest.raises(InvalidInput, match=r"^x: '.*' is not accepted; a tensor's type is one of"):
            write_frame({}, {"x": array})
    with pytest.raises(InvalidInput, match=r"^x: 1 is not accepted; a text is expected"):
        write_frame({}, {"x": np.array([1], np.object_)})
    with pytest.raises(InvalidInput, match=r"^x: .*udc80.* is not accepted; a text that UTF-8 has"):
        write_frame({}, {"x": np.array(["a\udc80"], np.object_)})


def test_frame_beyond_the_limits_is_not_sent(monkeypatch):
    with pytest.raises(
        InvalidInput, match=r"^header: \d+ is not accepted; a frame has room for 1048576 bytes"
    ):
        write_frame({"id": "x" * MOST_HEADER})
    monkeypatch.setattr(frames, "MOST_CONTENT", 16)
    assert write_frame({}, {"x": np.zeros(4, np.float32)})
    with pytest.raises(InvalidInput, match=r"^tensors: 24 is not accepted; a frame has room for 16 bytes"):
        write_frame({}, {"x": np.zeros(5, np.float32)})


def test_texts_may_be_str_and_arrays_may_be_views():
    tensors = {"text": np.array([["é", b"\xff"]], np.object_), "view": np.arange(12).reshape(3, 4)[:, ::2]}
    [frame] = read([write_frame({}, tensors)])
    found = read_tensors(frame)
    assert found["text"].tolist() == [["é".encode(), b"\xff"]]
    assert found["view"].tolist() == [[0, 2], [4, 6], [8, 10]]
