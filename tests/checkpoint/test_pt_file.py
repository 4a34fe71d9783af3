"""Files of ``torch.save``, read without torch: what torch reads of them; any other object is its name."""

from __future__ import annotations

import argparse
import os
import pickle
import random
import re
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_tensor_pickle import DAMAGES, damaged
from torch import nn

from cosyvoice_runtime.checkpoint import pt_file
from cosyvoice_runtime.checkpoint.as_torch import as_torch
from cosyvoice_runtime.checkpoint.pt_file import read_pt
from cosyvoice_runtime.checkpoint.tensor_pickle import Skipped
from cosyvoice_runtime.errors import CheckpointError

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def written(path: Path, content: object, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


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


def test_pickle_of_python_itself_is_no_file_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        read_pt(path)
