"""The pickle inside a ``.pt`` file, read by Python's unpickler, which finds tensors and containers alone.

Before it runs, every instruction is looked at: those that ``torch.save`` does not need are refused or
replaced. No name of the file is looked up: the few that ``torch.save`` writes for tensors stand for functions
of this module. An object of any other class, which training leaves beside the tensors, is its name and
nothing more (:class:`Skipped`).
"""

from __future__ import annotations

import math
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

from cosyvoice_runtime.arrays import Array

MAX_DIMENSIONS = 16
MAX_SIZE = 2**63
"""Limit of a tensor's sizes, as torch counts. Products of longer numbers take for ever."""
MAX_OPERATIONS = 1_000_000
"""A checkpoint of a thousand tensors takes some 40,000; each may take hundreds of bytes of memory."""
MAX_KEY = 2**31
"""Limit of a number as a key. Larger ones can be chosen so that all have one hash, and take for ever."""
MAX_CHARACTERS = 1000
"""Limit of a name: one text may be named by many keys and classes, and is copied for each of them."""
COPIED = {
    "PROTO", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM",
    "SETITEMS", "ADDITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL",
    "STACK_GLOBAL", "REDUCE", "BINPERSID", "POP", "POP_MARK",
}  # fmt: skip
"""Instructions that the unpickler gets as they are."""
A_BYTES_OBJECT = b"cbuiltins\nbytes\n"
REPLACED = {
    "EMPTY_DICT": b"ccollections\nOrderedDict\n)R",  # a Dictionary: an attack's keys take for ever
    "EMPTY_SET": b"cbuiltins\nset\n",  # as an attack's items do
    "FROZENSET": b"1cbuiltins\nfrozenset\n",
    "BINBYTES": A_BYTES_OBJECT,
    "SHORT_BINBYTES": A_BYTES_OBJECT,
    "BINBYTES8": A_BYTES_OBJECT,
    "BYTEARRAY8": A_BYTES_OBJECT,
    "NEWOBJ": b"R",
    "NEWOBJ_EX": b"0R",
    "BUILD": b"0",  # attributes are set nowhere
    "FRAME": b"",
}
"""Instructions that the unpickler gets others for."""


class DamagedPickle(Exception):
    """The bytes are no pickle of ``torch.save``."""


@dataclass(frozen=True)
class Skipped:
    """A class or function, by its name in the pickle, that was neither looked up nor called."""

    name: str

    def __call__(self, *_: Any) -> Skipped:
        """An object of it."""
        return self

    def extend(self, _: Any) -> None:
        """Items are dropped."""

    def add(self, _: Any) -> None:
        """An item is dropped."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """An item is dropped."""


class Dictionary(dict[Any, Any]):
    """A dictionary whose keys are short names or numbers.

    Other entries are skipped, as a tuple's hash can take for ever.
    """

    __slots__ = ()

    def __init__(self) -> None:
        """Items of a call would be copied by each of many calls."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if _is_key(key):
            super().__setitem__(key, value)
        else:
            super().__setitem__(f"a key of type {type(key).__name__}", Skipped("entry"))


class Storages(Protocol):
    """The numbers beside a pickle."""

    def __call__(self, name: str, dtype: np.dtype[Any], count: int) -> Array:
        """The numbers of a storage, ``[count]``; a DamagedPickle tells that there are not as many."""


class Storage(NamedTuple):
    """A storage, of which tensors are views."""

    values: Array


def load_tensors(data: bytes, storages: Storages) -> Any:
    """Read a pickle of ``torch.save``: arrays for tensors, and :class:`Skipped` for strange objects.

    Raises:
        DamagedPickle: it is cut off, is of another program, or describes tensors that can't be.
    """
    try:
        return _Unpickler(_harmless(data), storages).load()
    except (
        pickle.UnpicklingError, AttributeError, EOFError, LookupError, OverflowError, TypeError, ValueError
    ) as error:  # fmt: skip
        raise DamagedPickle(f"not as torch.save writes it: {error}") from error


def _harmless(data: bytes) -> bytes:
    """The pickle with instructions that make tensors and containers alone.

    Raises:
        DamagedPickle: there are too many, or ``torch.save`` does not write one of them.
    """
    written = bytearray()
    operations = pairwise(pickletools.genops(data))
    for count, ((operation, argument, begin), (_, _, end)) in enumerate(operations):
        name = operation.name
        if count == MAX_OPERATIONS:
            raise DamagedPickle(f"more than {MAX_OPERATIONS} instructions")
        if name not in COPIED and name not in REPLACED:
            raise DamagedPickle(f"the instruction {name}, which torch.save does not write")
        if name == "LONG_BINPUT" and (argument or 0) > MAX_OPERATIONS:  # its memory is as long
            raise DamagedPickle(f"a memo of {argument} places")
        written += REPLACED[name] if name in REPLACED else data[begin:end]
    return bytes(written + pickle.STOP)


class _Unpickler(pickle.Unpickler):
    """Python's unpickler with the functions of this module for names, and storages read by us.

    Arrays are read-only until the end: an instruction that sets an item would copy what it is given.
    """

    def __init__(self, data: bytes, storages: Storages) -> None:
        super().__init__(BytesIO(data))
        self._storages = storages
        self._tensors: list[Array] = []

    def load(self) -> Any:
        content = super().load()
        for tensor in self._tensors:
            tensor.flags.writeable = True
        return content

    def find_class(self, module: str, name: str) -> Any:
        if len(module) + len(name) > MAX_CHARACTERS:
            raise DamagedPickle(f"a name of more than {MAX_CHARACTERS} characters")
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        return NAMES.get((module, name), Skipped(f"{module}.{name}"))

    def persistent_load(self, reference: Any) -> Storage | Skipped:
        kind, dtype, name, _device, count = _expected(reference, tuple)
        if kind != "storage" or not isinstance(dtype, np.dtype | Skipped):
            raise DamagedPickle("a reference to something other than a storage")
        if isinstance(dtype, Skipped):
            return dtype
        return Storage(self._storages(_expected(name, str), dtype, _expected(count, int)))

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Array | Skipped:
        if isinstance(storage, Skipped):
            return storage
        tensor = _view(_expected(storage, Storage).values, offset, shape, strides).view()
        tensor.flags.writeable = False
        self._tensors.append(tensor)
        return tensor


def _parameter(tensor: Any, *_: Any) -> Array | Skipped:
    return tensor if isinstance(tensor, Skipped) else _expected(tensor, np.ndarray)


def _expected(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise DamagedPickle(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _is_key(key: Any) -> bool:
    if type(key) is str:
        return len(key) <= MAX_CHARACTERS
    return type(key) is int and 0 <= key < MAX_KEY


def _view(storage: Array, offset: Any, shape: Any, strides: Any) -> Array:
    """A view of a storage; a DamagedPickle tells that it reaches beyond the storage."""
    shape, strides, [start] = _sizes(shape), _sizes(strides), _sizes((offset,))
    if len(shape) != len(strides):
        raise DamagedPickle(f"a tensor of {len(shape)} dimensions with {len(strides)} strides")
    count = math.prod(shape)
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1 if count else 0
    if start + reach > len(storage) or count > len(storage):
        raise DamagedPickle(f"a tensor of shape {shape} in a storage of {len(storage)}")
    steps = [stride * storage.itemsize for stride in strides] if count else None
    base = storage[start : start + reach] if count else storage[:0].reshape(shape)
    return as_strided(base, shape, steps)


def _sizes(numbers: Any) -> tuple[int, ...]:
    numbers = _expected(numbers, tuple)
    if len(numbers) > MAX_DIMENSIONS or not all(
        type(number) is int and 0 <= number < MAX_SIZE for number in numbers
    ):
        raise DamagedPickle("sizes that are none")
    return numbers


NAMES: dict[tuple[str, str], np.dtype[Any] | Callable[..., Any]] = {
    ("collections", "OrderedDict"): Dictionary,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch", "FloatStorage"): np.dtype(np.float32),
    ("torch", "DoubleStorage"): np.dtype(np.float64),
    ("torch", "HalfStorage"): np.dtype(np.float16),
    ("torch", "BFloat16Storage"): np.dtype(ml_dtypes.bfloat16),
    ("torch", "LongStorage"): np.dtype(np.int64),
    ("torch", "IntStorage"): np.dtype(np.int32),
    ("torch", "ShortStorage"): np.dtype(np.int16),
    ("torch", "CharStorage"): np.dtype(np.int8),
    ("torch", "ByteStorage"): np.dtype(np.uint8),
    ("torch", "BoolStorage"): np.dtype(np.bool_),
}
"""Meanings of names in a pickle; a class of storages stands for its dtype."""
