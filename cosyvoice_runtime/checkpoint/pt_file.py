"""Files of ``torch.save`` (``.pt``), read without torch and without running anything they hold."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.tensor_pickle import DamagedPickle, Skipped, load_tensors
from cosyvoice_runtime.errors import CheckpointError

MAX_PICKLE_BYTES = 16 << 20
"""Names and shapes of a checkpoint take some ten thousand."""
MAX_RECORDS = 100_000
OLD_FORM = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""Beginning of files of torch before 1.6: a pickled magic number."""
ENCRYPTED = 1
"""Bit of a record's flags (PKWARE's APPNOTE.TXT, 4.4.4)."""
LOCAL_HEADER_BYTES = 30
"""Length of what stands before a record's name (PKWARE's APPNOTE.TXT, 4.3.7)."""


class Record(NamedTuple):
    """Position of a record's bytes in the file."""

    start: int
    size: int


def read_pt(path: Path) -> Any:
    """Read what was saved, with arrays in place of tensors: mapped memory, whose change changes no file.

    Objects that are neither tensors nor containers are :class:`Skipped` in it.

    Raises:
        CheckpointError: the file is damaged, of torch before 1.6, or is such an object as a whole.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no file")
    try:
        with path.open("rb") as file:
            begin = file.read(len(OLD_FORM))
            if begin == OLD_FORM:
                raise CheckpointError(_advice(path))
            with zipfile.ZipFile(file) as archive:
                content = _Archive(path, archive).content()
    except (zipfile.BadZipFile, DamagedPickle, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: truncated or damaged: {error}") from error
    if isinstance(content, Skipped):
        raise CheckpointError(
            f"{path}: refused: it is an object of {content.name}, which is not looked up; write tensors by "
            "name: torch.save(network.state_dict(), path)"
        )
    return content


def _advice(path: Path) -> str:
    again = "torch.save(torch.load(path, weights_only=True), path)"
    return f"{path}: refused: it is of the form before torch 1.6; write it anew with any newer torch: {again}"


class _Archive:
    """The zip archive of one file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._bytes = np.memmap(path, np.uint8, "c")
        self._records = self._all_records()
        self._storages: dict[tuple[str, str], Array] = {}
        pickles = [name for name in self._records if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise DamagedPickle("no archive of torch.save")
        self._pickle = pickles[0]
        self._folder = self._pickle.removesuffix("data.pkl")

    def content(self) -> Any:
        order = self._folder + "byteorder"
        if order in self._records and self._archive.read(order) != b"little":
            raise DamagedPickle("written on a machine of another byte order")
        if self._records[self._pickle].size > MAX_PICKLE_BYTES:
            raise DamagedPickle(f"its list of tensors is longer than {MAX_PICKLE_BYTES} bytes")
        return load_tensors(self._archive.read(self._pickle), self._storage)

    def _storage(self, name: str, dtype: np.dtype[Any], count: int) -> Array:
        record = self._records.get(f"{self._folder}data/{name}")
        if record is None or record.size != count * dtype.itemsize:
            raise DamagedPickle(f"storage {name!r} has not the {count} elements that are told of it")
        key = name, dtype.name
        if key not in self._storages:
            # A view, not a memmap: those are slower to cut.
            values = np.asarray(self._bytes[record.start : record.start + record.size])
            self._storages[key] = values.view(dtype)
        return self._storages[key]

    def _all_records(self) -> dict[str, Record]:
        listed = self._archive.infolist()
        if len(listed) > MAX_RECORDS or len({one.filename for one in listed}) < len(listed):
            raise DamagedPickle("too many records, or two of one name")
        if any("/code/" in one.filename for one in listed):
            raise DamagedPickle(
                "it is a program of TorchScript; write torch.save(network.state_dict(), path)"
            )
        return {one.filename: self._record(one) for one in listed}

    def _record(self, listed: zipfile.ZipInfo) -> Record:
        if listed.compress_type != zipfile.ZIP_STORED or listed.compress_size != listed.file_size:
            raise DamagedPickle(f"record {listed.filename!r} is compressed")
        if listed.flag_bits & ENCRYPTED:
            raise DamagedPickle(f"record {listed.filename!r} is encrypted")
        # The two lengths of the local header: its extra field pads the record, the directory's does not.
        lengths = self._bytes[listed.header_offset + 26 : listed.header_offset + LOCAL_HEADER_BYTES]
        name, extra = np.frombuffer(lengths.tobytes(), "<u2")
        start = listed.header_offset + LOCAL_HEADER_BYTES + int(name) + int(extra)
        if start + listed.file_size > len(self._bytes):
            raise DamagedPickle(f"record {listed.filename!r} lies beyond the end of the file")
        return Record(start, listed.file_size)
