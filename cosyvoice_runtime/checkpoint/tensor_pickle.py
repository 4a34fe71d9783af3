"""The pickle inside a ``.pt`` file, read by a machine that knows tensors and containers and nothing else.

Python's own unpickler calls what a file names. This one never looks up a name: the few that ``torch.save``
writes for tensors stand for functions of this module. An object of any other class, which training leaves
beside the tensors, is its name and nothing more (:class:`Skipped`).
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

from cosyvoice_runtime.arrays import Array

MAX_DIMENSIONS = 16
MAX_SIZE = 2**63
"""Of a tensor, as torch counts. Products of longer numbers take for ever."""
MAX_OPERATIONS = 1_000_000
"""A checkpoint of a thousand tensors takes some 40,000; each may take hundreds of bytes of memory."""
MAX_KEY = 2**31
"""Of a number as a key. Larger ones can be chosen so that all have one hash, and take for ever."""
MAX_KEY_CHARACTERS = 1000
"""Of a name as a key: one text may be the key of many dictionaries, and is copied for each of them."""
DTYPES: dict[str, np.dtype[Any]] = {
    "FloatStorage": np.dtype(np.float32),
    "DoubleStorage": np.dtype(np.float64),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}
"""Classes of ``torch`` that a storage is written as."""


class DamagedPickle(Exception):
    """What is no pickle of ``torch.save``."""


@dataclass(frozen=True)
class Skipped:
    """Stands for what is no tensor, container, number or text, and was neither looked up nor called.

    Attributes:
        name: of the class or function, as the pickle says it.
    """

    name: str


class Storages(Protocol):
    """The numbers beside a pickle."""

    def __call__(self, name: str, dtype: np.dtype[Any], count: int) -> Array:
        """Those of a storage, ``[count]``.

        Raises:
            DamagedPickle: there are not as many.
        """


class Global(NamedTuple):
    """A name that the pickle says."""

    module: str
    name: str


def load_tensors(pickle: bytes, storages: Storages) -> Any:
    """What a pickle of ``torch.save`` holds: arrays for tensors, and :class:`Skipped` for strange objects.

    Raises:
        DamagedPickle: it is cut off, is of another program, or describes tensors that can't be.
    """
    return _Machine(storages).run(pickle)


class _Machine:
    """A stack, where on it the items of a list, tuple or dictionary begin, and a memory of what was on it."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, pickle: bytes) -> Any:
        try:
            for done, (name, argument) in enumerate(_operations(pickle)):
                if done == MAX_OPERATIONS:
                    raise DamagedPickle(f"more than {MAX_OPERATIONS} instructions")
                if name == "STOP":
                    return self._pop()
                self._do(name, argument)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise DamagedPickle(f"not as torch.save writes it: {error}") from error
        raise DamagedPickle("it is cut off")

    def _do(self, name: str, argument: Any) -> None:
        if name in VALUES:
            self._stack.append(VALUES[name](argument))
        elif name in ACTIONS:
            ACTIONS[name](self, argument)
        else:
            raise DamagedPickle(f"the instruction {name}, which torch.save does not write")

    def _top(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise DamagedPickle("nothing is there to be taken")
        return self._stack[-1]

    def _pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _pop_to_mark(self) -> list[Any]:
        place = self._marks.pop()
        items = self._stack[place:]
        del self._stack[place:]
        return items

    def _drop(self, _: Any) -> None:
        self._pop()

    def _drop_to_mark(self, _: Any) -> None:
        self._pop_to_mark()

    def _tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self._stack.append(tuple(items[::-1]))

    def _tuple_to_mark(self, _: Any) -> None:
        self._stack.append(tuple(self._pop_to_mark()))

    def _append(self, _: Any) -> None:
        self._extend([self._pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self._pop_to_mark())

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self._top(), Skipped):
            _expected(self._top(), list).extend(items)

    def _add_items(self, _: Any) -> None:
        self._pop_to_mark()
        _expected(self._top(), Skipped)

    def _set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        _set_all(self._top(), [key, value])

    def _set_items(self, _: Any) -> None:
        items = self._pop_to_mark()
        _set_all(self._top(), items)

    def _put(self, place: int) -> None:
        self._memo[place] = self._top()

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def _get(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(_global(Global(module, name)))

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        self._stack.append(_global(Global(_expected(module, str), _expected(name, str))))

    def _reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        strange = next((one for one in (function, *_arguments(arguments)) if isinstance(one, Skipped)), None)
        if strange is None and function not in FUNCTIONS:
            raise DamagedPickle(f"a call of {type(function).__name__}")
        self._stack.append(strange or FUNCTIONS[function](*arguments))

    def _new_object(self, values: int) -> None:
        """An object, of a class and values that it is made of."""
        for _ in range(values):
            self._pop()
        self._stack.append(_expected(self._pop(), Skipped))

    def _object_to_mark(self, _: Any) -> None:
        items = self._pop_to_mark()
        self._stack.append(_expected(items[0], Skipped))

    def _instance_to_mark(self, argument: str) -> None:
        self._pop_to_mark()
        self._stack.append(Skipped(argument.replace(" ", ".")))

    def _frozen_set(self, _: Any) -> None:
        self._pop_to_mark()
        self._stack.append(Skipped("frozenset"))

    def _build(self, _: Any) -> None:
        """Attributes of a dictionary, which a state dict has for its versions, or of an object: not read."""
        self._pop()
        if not isinstance(self._top(), Skipped):
            _expected(self._top(), dict)

    def _persistent(self, _: Any) -> None:
        kind, storage, name, _device, count = _expected(self._pop(), tuple)
        if kind != "storage" or not isinstance(storage, Global | Skipped):
            raise DamagedPickle("a reference to something other than a storage")
        if isinstance(storage, Skipped):
            self._stack.append(storage)
            return
        self._stack.append(self._storages(_expected(name, str), DTYPES[storage.name], _expected(count, int)))


def _operations(pickle: bytes) -> Iterator[tuple[str, Any]]:
    for operation, argument, _ in pickletools.genops(pickle):
        yield operation.name, argument


def _global(name: Global) -> Global | Skipped:
    if name in FUNCTIONS or (name.module == "torch" and name.name in DTYPES):
        return name
    return Skipped(f"{name.module}.{name.name}")


def _arguments(value: Any) -> tuple[Any, ...]:
    """Of a call; a class that stands there as an object was made by it."""
    return (value,) if isinstance(value, Skipped) else _expected(value, tuple)


def _expected(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise DamagedPickle(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _set_all(target: Any, items: list[Any]) -> None:
    """Keys are short names or numbers; other entries are skipped, as a tuple's hash can take for ever."""
    if isinstance(target, Skipped):
        return
    target = _expected(target, dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
        if _is_key(key):
            target[key] = value
        else:
            target[f"a key of type {type(key).__name__}"] = Skipped("entry")


def _is_key(key: Any) -> bool:
    if type(key) is str:
        return len(key) <= MAX_KEY_CHARACTERS
    return type(key) is int and 0 <= key < MAX_KEY


def _ordered_dictionary() -> dict[Any, Any]:
    """Empty: its items follow. A list of them in the call could be copied by each of many calls."""
    return {}


def _tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, _gradient: Any, _hooks: Any, _more: Any = None
) -> Array:
    """A view of a storage.

    Raises:
        DamagedPickle: the view reaches beyond the storage, or has more elements.
    """
    storage, shape, strides = _expected(storage, np.ndarray), _sizes(shape), _sizes(strides)
    start = _sizes((offset,))[0]
    if len(shape) != len(strides):
        raise DamagedPickle(f"a tensor of {len(shape)} dimensions with {len(strides)} strides")
    count = math.prod(shape)
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1 if count else 0
    if start + reach > len(storage) or count > len(storage):
        raise DamagedPickle(f"a tensor of shape {shape} in a storage of {len(storage)}")
    steps = [stride * storage.itemsize for stride in strides] if count else None
    return as_strided(storage[start : start + reach] if count else storage[:0].reshape(shape), shape, steps)


def _sizes(numbers: Any) -> tuple[int, ...]:
    numbers = _expected(numbers, tuple)
    if len(numbers) > MAX_DIMENSIONS or not all(
        type(number) is int and 0 <= number < MAX_SIZE for number in numbers
    ):
        raise DamagedPickle("sizes that are none")
    return numbers


def _parameter(tensor: Any, _gradient: Any, _hooks: Any, _state: Any = None) -> Array:
    return _expected(tensor, np.ndarray)


FUNCTIONS: dict[Global, Callable[..., Any]] = {
    Global("collections", "OrderedDict"): _ordered_dictionary,
    Global("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Global("torch._utils", "_rebuild_parameter"): _parameter,
    Global("torch._utils", "_rebuild_parameter_with_state"): _parameter,
}
"""What the names in a pickle stand for here."""

VALUES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_SET": lambda _: Skipped("set"),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"), lambda value: value),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), lambda value: value),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda _: Skipped("bytes")),
}
"""Instructions that put something on the stack."""

ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda _machine, _argument: None,
    "FRAME": lambda _machine, _argument: None,
    "MARK": _Machine._mark,
    "TUPLE": _Machine._tuple_to_mark,
    "TUPLE1": lambda machine, _: machine._tuple(1),
    "TUPLE2": lambda machine, _: machine._tuple(2),
    "TUPLE3": lambda machine, _: machine._tuple(3),
    "APPEND": _Machine._append,
    "APPENDS": _Machine._appends,
    "SETITEM": _Machine._set_item,
    "SETITEMS": _Machine._set_items,
    "BINPUT": _Machine._put,
    "LONG_BINPUT": _Machine._put,
    "MEMOIZE": _Machine._memoize,
    "BINGET": _Machine._get,
    "LONG_BINGET": _Machine._get,
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._stack_global,
    "REDUCE": _Machine._reduce,
    "NEWOBJ": lambda machine, _: machine._new_object(1),
    "NEWOBJ_EX": lambda machine, _: machine._new_object(2),
    "OBJ": _Machine._object_to_mark,
    "INST": _Machine._instance_to_mark,
    "ADDITEMS": _Machine._add_items,
    "FROZENSET": _Machine._frozen_set,
    "POP": _Machine._drop,
    "POP_MARK": _Machine._drop_to_mark,
    "BUILD": _Machine._build,
    "BINPERSID": _Machine._persistent,
}
"""The other instructions that pickles of training have, of protocols 2 to 5. Objects are made by none."""
