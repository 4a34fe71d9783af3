"""Files of ``torch.save``, read without torch: what torch reads of them; any other object is its name."""

from __future__ import annotations

import argparse
import os
import pickle
import random
import re
import struct
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cosyvoice_runtime.checkpoint import pt_file
from cosyvoice_runtime.checkpoint import tensor_pickle as tensor_pickle_machine
from cosyvoice_runtime.checkpoint.as_torch import as_torch
from cosyvoice_runtime.checkpoint.pt_file import read_pt
from cosyvoice_runtime.checkpoint.tensor_pickle import DamagedPickle, Skipped, load_tensors
from cosyvoice_runtime.errors import CheckpointError

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
DAMAGES = 400


def written(path: Path, content: object, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def no_storages(name: str, dtype: np.dtype[Any], count: int) -> np.ndarray:
    """Every storage is there, in memory of its own."""
    return np.zeros(min(count, 1000), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_what_torch_reads(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = (torch.randn(3, 5, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    read = read_pt(written(tmp_path / "a.pt", {"a": tensor}))["a"]
    assert torch.equal(as_torch(read), tensor)
    assert as_torch(read).dtype == dtype


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base,
        lambda base: base[2:],
        lambda base: base.T,
        lambda base: base[:, 1::2],
        lambda base: base[3],
        lambda base: base[3, 4],
        lambda base: base[:0],
        lambda base: base[:, None, 3],
    ],
)
def test_views_share_their_storage(tmp_path: Path, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    base = torch.arange(48.0).view(6, 8)
    read = read_pt(written(tmp_path / "a.pt", [base, view(base)]))
    assert torch.equal(as_torch(read[1]), view(base))
    read[0][:] = 7
    assert (read[1] == 7).all()


def test_what_networks_and_speakers_are_saved_as_is_read(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    content = {
        "state": network.state_dict(),
        "parameters": OrderedDict(network.named_parameters()),
        "plain": {"name": "中文女", "numbers": [1, 2**40, -7, 0.5, True, None], "pair": (1, "b"), "none": ()},
        7: torch.zeros(2),
    }
    read = read_pt(written(tmp_path / "a.pt", content))
    for group in ("state", "parameters"):
        assert all(
            torch.equal(as_torch(read[group][name]), tensor) for name, tensor in content[group].items()
        )
    assert read["plain"] == content["plain"]
    assert read[7].tolist() == [0, 0]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    path = written(tmp_path / "a.pt", {"a": torch.arange(3)}, pickle_protocol=protocol)
    assert read_pt(path)["a"].tolist() == [0, 1, 2]


def test_reading_maps_the_file_and_writing_leaves_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pt", {"a": torch.arange(3)})
    before = path.read_bytes()
    read_pt(path)["a"][:] = 9
    assert path.read_bytes() == before
    assert read_pt(path)["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "content",
    [
        torch.Size([1]),
        torch.float32,
        {1, 2},
        frozenset({1}),
        1 + 2j,
        b"text",
        argparse.Namespace(lr=1e-3, name="a"),
        np.float64(0.5),
        defaultdict(list, a=[1]),
        nn.Linear(1, 1),
        np.zeros(2),
        Path("a"),
        print,
    ],
    ids=repr,
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_objects_are_refused_by_name_and_skipped_beside_tensors(
    tmp_path: Path, content: object, protocol: int
) -> None:
    path = written(tmp_path / "a.pt", content, pickle_protocol=protocol)
    with pytest.raises(CheckpointError, match=re.escape(f"{path}: refused: it is an object of ")):
        read_pt(path)
    beside = {"a": torch.arange(3), "b": content, "c": [content, 1]}
    read = read_pt(written(path, beside, pickle_protocol=protocol))
    assert read["a"].tolist() == [0, 1, 2]
    assert isinstance(read["b"], Skipped)
    assert read["c"] == [read["b"], 1]


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


def rewritten(path: Path, change: Callable[[str, bytes], bytes | None], **options: Any) -> Path:
    """The archive with other records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in records.items():
            if content is not None:
                archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda name, data: None if "/data/" in name else data, "storage '0' has not"),
        (lambda name, data: data[:-4] if "/data/" in name else data, "storage '0' has not"),
        (lambda name, data: None if "data.pkl" in name else data, "no archive of torch"),
        (lambda name, data: b"big" if "byteorder" in name else data, "another byte order"),
    ],
)
def test_archive_of_other_records_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    path = rewritten(written(tmp_path / "a.pt", {"a": torch.zeros(8)}), change)
    with pytest.raises(CheckpointError, match=f"truncated or damaged: .*{told}"):
        read_pt(path)


def test_compressed_records_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pt", {"a": torch.zeros(8)})
    rewritten(path, lambda _, data: data, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="is compressed"):
        read_pt(path)


def test_programs_of_torchscript_are_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.jit.save(torch.jit.script(nn.Linear(1, 1)), path)
    with pytest.raises(CheckpointError, match="it is a program of TorchScript; write"):
        read_pt(path)


def test_encrypted_records_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pt", {"a": torch.zeros(8)})
    content = bytearray(path.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for place in [match.start() for match in re.finditer(re.escape(header), bytes(content))]:
            content[place + flags] |= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="is encrypted"):
        read_pt(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="no file"):
        read_pt(tmp_path / "a.pt")


def test_more_instructions_than_any_checkpoint_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_pickle_machine, "MAX_OPERATIONS", 50)
    with pytest.raises(DamagedPickle, match="more than 50"):
        load_tensors(b"\x80\x02" + b"}" * 60 + b".", no_storages)


def test_a_list_of_tensors_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.pt", {"a": torch.zeros(8)})
    monkeypatch.setattr(pt_file, "MAX_PICKLE_BYTES", 10)
    with pytest.raises(CheckpointError, match="longer than 10 bytes"):
        read_pt(path)


def test_damaged_files_are_read_or_refused_and_never_more(tmp_path: Path) -> None:
    """Bytes changed, cut out, doubled and cut off, in the pickle and in the archive around it."""
    good = written(
        tmp_path / "good.pt", {"a": torch.arange(12.0).view(3, 4), "b": torch.ones(5).half(), "c": [1, "x"]}
    ).read_bytes()
    path, draw = tmp_path / "damaged.pt", random.Random(0)
    refused = 0
    for _ in range(DAMAGES):
        path.write_bytes(damaged(good, draw))
        try:
            read_pt(path)
        except CheckpointError:
            refused += 1
    assert refused > DAMAGES / 4


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


def test_pickle_of_python_itself_is_no_file_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        read_pt(path)
