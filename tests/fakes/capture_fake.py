"""A stand-in for CUDA graphs on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph

T = TypeVar("T")


def play_back(
    compute: Callable[[], torch.Tensor], warm_up: Callable[[], object] | None = None
) -> CapturedGraph[torch.Tensor]:
    """Captures by keeping the computation: the same memory in, the same memory out."""
    if warm_up is not None:
        warm_up()
    result = compute()
    return CapturedGraph(lambda: result.copy_(compute()), result, compute)


class ComputedAgain:
    """Captures nothing: a replay computes on the same memory and leaves the result in the same place.

    For what cannot be traced.
    """

    def __init__(self) -> None:
        self.warm_ups = 0

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> CapturedGraph[T]:
        if warm_up is not None:
            warm_up()
            self.warm_ups += 1
        result = compute()
        return CapturedGraph(compute, result, compute)


FAR = 2**40
"""No index of anything."""


class Made(NamedTuple):
    """The place of a tensor among those that the operations of a trace have made."""

    place: int


class Trace(TorchDispatchMode):
    """Notes the operations that run inside, and runs them again: each on what those before it have made.

    Tensors from outside are used where they are. An operation whose result the host reads is an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple[Callable[..., Any], Any, Any]] = []
        self._made: list[torch.Tensor] = []
        self._places: dict[int, Made] = {}  # by the id of a tensor in the list, where it stays alive
        self._storages: set[int] = set()
        self._own: list[ref[torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            raise RuntimeError(f"{func} reads a tensor on the host, which no captured computation can")
        if func is torch.ops.aten.lift_fresh.default:
            func = torch.ops.aten.lift_fresh_copy.default  # a replay must not find a changed constant
        self._operations.append((func, self.named(args), self.named(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        given = {storage(tensor) for tensor in tensors([args, kwargs or {}])}
        for tensor in tensors(result):
            self._places[id(tensor)] = Made(len(self._made))
            self._made.append(tensor)
            if storage(tensor) in self._storages or storage(tensor) not in given:
                self._storages.add(storage(tensor))
                self._own.append(ref(tensor))
        return result

    def named(self, value: Any) -> Any:
        """The value, with places instead of the tensors that were made inside."""
        return replaced(value, torch.Tensor, lambda tensor: self._places.get(id(tensor), tensor))

    def close(self) -> None:
        """Free what the operations have made.

        Raises:
            RuntimeError: somebody keeps a tensor that was made inside. Its memory is the pool's, where graphs
                that were captured before have theirs, too.
        """
        self._made.clear()
        self._places.clear()
        kept = [tuple(tensor.shape) for made in self._own if (tensor := made()) is not None]
        if kept:
            raise RuntimeError(f"tensors made while capturing are kept: {kept}")

    def again(self, wanted: Any) -> Any:
        """Run the operations again; ``wanted`` comes back with tensors instead of their places."""
        made: list[torch.Tensor] = []

        def given(value: Any) -> Any:
            return replaced(value, Made, lambda name: made[name.place])

        for func, args, kwargs in self._operations:
            made.extend(tensors(func(*given(args), **given(kwargs))))
        return given(wanted)


def replaced(value: Any, kind: type[T], by: Callable[[T], object]) -> Any:
    """The arguments of an operation with all of a kind replaced."""
    if isinstance(value, kind):
        return by(value)
    if isinstance(value, list | tuple):
        return type(value)([replaced(part, kind, by) for part in value])
    if isinstance(value, dict):
        return {key: replaced(part, kind, by) for key, part in value.items()}
    return value


class TracingCapture:
    """Traces the operations of a computation with the memory they used and replays just these.

    As with a CUDA graph, what the host decided or computed while capturing stays as it was, reading a
    tensor on the host is an error, and a replay overwrites the results of graphs captured later. As with
    `CudaGraphCapture`, only the first of each code has run before.
    """

    WARM_UPS = 2

    def __init__(self) -> None:
        self.replays = 0
        self._warm: set[object] = set()
        self._results: list[object] = []

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> CapturedGraph[T]:
        code = getattr(compute, "__code__", compute)
        for _ in range(0 if code in self._warm else self.WARM_UPS):
            (warm_up or compute)()
        self._warm.add(code)
        with Trace() as trace:
            wanted = trace.named(list(tensors(compute())))
        trace.close()
        result = compute()
        self._results.append(result)
        later = len(self._results)

        def replay() -> None:
            self.replays += 1
            for spoilt in tensors(self._results[later:]):
                spoilt.fill_(torch.nan if spoilt.is_floating_point() else FAR)
            for kept, new in zip(tensors(result), trace.again(wanted), strict=True):
                kept.copy_(new)

        replay()
        self.replays -= 1  # of those that the test asked for
        return CapturedGraph(replay, result, compute)


def storage(tensor: torch.Tensor) -> int:
    """A number that names the memory of a tensor and of its views."""
    return tensor.untyped_storage()._cdata


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All in nested dataclasses, sequences and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, dict):
        yield from tensors([*value.values()])
