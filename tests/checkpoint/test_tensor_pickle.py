"""The pickle machine of torch's files: what hostile and damaged instructions can do, which is nothing."""

from __future__ import annotations

import random
import struct
import zipfile
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint import tensor_pickle as tensor_pickle_machine
from cosyvoice_runtime.checkpoint.tensor_pickle import DamagedPickle, Skipped, load_tensors

DAMAGES = 400


def no_storages(name: str, dtype: np.dtype[Any], count: int) -> np.ndarray:
    """Every storage is there, in memory of its own."""
    return np.zeros(min(count, 1000), dtype)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Data with up to three damages."""
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(data))
        length = draw.randint(1, 8)
        data = draw.choice(
            (
                data[:place] + draw.randbytes(length) + data[place + length :],
                data[:place] + data[place + length :],
                data[:place] + data[place : place + length] + data[place:],
                data[:place] + struct.pack("<I", draw.choice((0, 2**31, 2**32 - 1))) + data[place + 4 :],
                data[: max(place, 1)],
            )
        )
    return data


@pytest.mark.parametrize("name", ["os system", "builtins eval", "torch load", "torch._utils _rebuild_tensor"])
@pytest.mark.parametrize("stacked", [False, True])
def test_no_name_but_those_of_tensors_is_known(name: str, stacked: bool) -> None:
    module, _, attribute = name.partition(" ")
    said = b"c" + name.replace(" ", "\n").encode() + b"\n"
    if stacked:
        texts = (bytes([0x8C, len(text)]) + text.encode() for text in (module, attribute))
        said = b"".join(texts) + b"\x93"
    skipped = Skipped(f"{module}.{attribute}")
    assert load_tensors(b"\x80\x04" + said + b".", no_storages) == skipped
    assert load_tensors(b"\x80\x04" + said + b"(X\x01\0\0\0atR.", no_storages) == skipped


@pytest.mark.parametrize(
    "instructions",
    [
        b"c__main__\nMalice\n)\x81.",
        b"c__main__\nMalice\n)}\x92.",
        b"c__main__\nMalice\n)\x81}X\x01\0\0\0aK\x01sb.",
        b"c__main__\nMalice\n)\x81(X\x01\0\0\0aK\x01u.",
        b"c__main__\nMalice\n)\x81(K\x01e.",
        b"c__main__\nMalice\n)\x81(K\x01\x90.",
    ],
    ids=["NEWOBJ", "NEWOBJ_EX", "BUILD", "SETITEMS", "APPENDS", "ADDITEMS"],
)
def test_instructions_that_make_objects_make_none(instructions: bytes) -> None:
    assert load_tensors(b"\x80\x02" + instructions, no_storages) == Skipped("__main__.Malice")


@pytest.mark.parametrize(
    "instructions",
    [
        b"(i__main__\nMalice\n.",
        b"(c__main__\nMalice\no.",
        b"(K\x01o.",
        b"]\x81.",
        b"K\x01)}\x92.",
        b"\x82\x01.",
        b"Pname\n.",
        b"(K\x01K\x02\x90.",
        b"(o.",
        b"K\x01K\x02R.",
        b"}K\x01e.",
    ],
)
def test_objects_of_no_class_are_no_pickle_of_torch(instructions: bytes) -> None:
    with pytest.raises(DamagedPickle):
        load_tensors(b"\x80\x02" + instructions, no_storages)


@pytest.mark.parametrize("known", [b"ctorch._utils\n_rebuild_parameter\n", b"ccollections\nOrderedDict\n"])
def test_attributes_are_set_nowhere(known: bytes) -> None:
    function = load_tensors(b"\x80\x02" + known + b"N}X\x0c\0\0\0__defaults__)s\x86b.", no_storages)
    assert getattr(function, "__defaults__", None) is None


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def tensor_pickle(offset: int, shape: tuple[int, ...], strides: tuple[int, ...], count: int = 10) -> bytes:
    """The pickle of one float32 tensor in a storage of ``count`` elements."""

    def number(value: int) -> bytes:
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)

    def sizes(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = (
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" + b"0X\x03\0\0\0cpu" + number(count) + b"tQ"
    )
    arguments = storage + number(offset) + sizes(shape) + sizes(strides)
    return b"\x80\x02" + REBUILD + b"(" + arguments + b"\x89}tR."


def test_a_tensor_within_its_storage_is_read() -> None:
    assert load_tensors(tensor_pickle(4, (2, 3), (3, 1)), no_storages).shape == (2, 3)


@pytest.mark.parametrize("key", [b"K\x00", b"]", b")", b"\x88", b"X\x01\0\0\0a"])
def test_no_instruction_writes_into_a_tensor(key: bytes) -> None:
    """Lists within lists would be copied: twice as much with each of a few bytes."""
    with pytest.raises(DamagedPickle, match="read-only"):
        load_tensors(tensor_pickle(0, (2, 3), (3, 1))[:-1] + key + b"]s.", no_storages)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (5, (2, 3), (3, 1)),
        (0, (11,), (1,)),
        (0, (2, 3), (8, 1)),
        (-1, (1,), (1,)),
        (0, (-1,), (1,)),
        (9, (2,), (-1,)),
        (0, (2**62,), (0,)),
        (0, (11, 1), (0, 0)),
        (2**63, (1,), (1,)),
        (0, (2, 3), (1,)),
        (0, (1,) * 17, (1,) * 17),
        (0, (2**62, 2**62, 0), (1, 1, 1)),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(
    offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    with pytest.raises(DamagedPickle):
        load_tensors(tensor_pickle(offset, shape, strides), no_storages)


def test_numbers_longer_than_torch_counts_are_not_multiplied() -> None:
    """Two of a million bytes each take seven seconds."""
    with pytest.raises(DamagedPickle, match="sizes that are none"):
        load_tensors(tensor_pickle(0, (2**63, 0), (1, 1)), no_storages)


HUGE = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1f"
"""2 ** 61 - 1, whose multiples all have the same hash."""


LONG = b"X\xe9\x03\x00\x00" + b"a" * 1001
"""A text that takes a dictionary four bytes to name again."""


@pytest.mark.parametrize("key", [b"(K\x01t", b"]", b"}", b"\x88", b"N", HUGE, LONG])
def test_only_short_names_and_small_numbers_are_keys(key: bytes) -> None:
    """The hash of tuples within tuples takes for ever: twice as long with each of a few bytes."""
    [(name, value)] = load_tensors(b"\x80\x02}" + key + b"K\x01s.", no_storages).items()
    assert name.startswith("a key of type ")
    assert value == Skipped("entry")


NESTED = b"".join((b")", b"q\x00h\x00\x86" * 60))
"""An empty tuple, and 60 times the pair of what was there before: its hash takes 2 ** 60 steps."""
DEEP = b")" + b"\x85" * 300_000
"""Tuples within tuples, whose hash takes more of C's stack than there is."""


@pytest.mark.parametrize("nested", [NESTED, DEEP], ids=["wide", "deep"])
@pytest.mark.parametrize(
    ("instructions", "name"),
    [
        (b"}%sK\x01s0cx\ny\n", "x.y"),
        (b"\x8f(%s\x90", "builtins.set"),
        (b"(%s\x91", "builtins.frozenset"),
        (b"cx\ny\n%sK\x01s", "x.y"),
        (b"cx\ny\n%sR", "x.y"),
    ],
    ids=["dict", "set", "frozenset", "object", "call"],
)
def test_nothing_takes_the_hash_of_tuples(instructions: bytes, name: str, nested: bytes) -> None:
    assert load_tensors(b"\x80\x04" + instructions.replace(b"%s", nested) + b".", no_storages) == Skipped(
        name
    )


@pytest.mark.parametrize(
    ("instructions", "told"),
    [
        (b"r\xff\xff\xff\xff", "a memo of 4294967295 places"),
        (b"\x96" + struct.pack("<Q", 2**40), "but only"),
        (b"\x8e" + struct.pack("<Q", 2**40), "but only"),
        (b"\x8d" + struct.pack("<Q", 2**40), "but only"),
        (b"\x8b" + struct.pack("<I", 2**31 - 1), "not enough data"),
        (b"X\xe8\x03\0\0" + b"a" * 1000 + b"q\x00h\x00\x93", "a name of more than 1000"),
    ],
    ids=["memo", "bytearray", "bytes", "text", "number", "class"],
)
def test_a_few_bytes_take_no_more_memory(instructions: bytes, told: str) -> None:
    with pytest.raises(DamagedPickle, match=told):
        load_tensors(b"\x80\x04N" + instructions + b".", no_storages)


def test_a_dictionary_copies_no_list() -> None:
    """Or a list of 20,000 items would be a gigabyte after a thousand calls of five bytes each."""
    items = b"](X\x01\x00\x00\x00aK\x01\x86e"
    with pytest.raises(DamagedPickle):
        load_tensors(b"\x80\x02ccollections\nOrderedDict\n" + items + b"\x85R.", no_storages)


def test_more_instructions_than_any_checkpoint_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_pickle_machine, "MAX_OPERATIONS", 50)
    with pytest.raises(DamagedPickle, match="more than 50"):
        load_tensors(b"\x80\x02" + b"}" * 60 + b".", no_storages)


def test_damaged_pickles_are_read_or_refused_and_never_more() -> None:
    """Without the archive's own checksum, which finds most damages before."""
    content = {"a": torch.arange(12.0).view(3, 4), "b": {"c": [1, 2.5, None, ("x", True)]}}
    file = BytesIO()
    torch.save(content, file)
    with zipfile.ZipFile(file) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("data.pkl")]
        good = archive.read(name)
    draw, refused = random.Random(1), 0
    for _ in range(10 * DAMAGES):
        try:
            load_tensors(damaged(good, draw), no_storages)
        except DamagedPickle:
            refused += 1
    assert refused > 4 * DAMAGES


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_plain_values(pickle_bytes: bytes) -> None:
    try:
        value = load_tensors(b"\x80\x02" + pickle_bytes + b".", no_storages)
    except DamagedPickle:
        return
    assert value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, np.ndarray, Skipped))
