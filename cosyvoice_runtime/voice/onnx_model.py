"""One ONNX graph with a checked interface, run on the CPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.onnx.memory import give_back_heap, share_arena

if TYPE_CHECKING:
    import onnxruntime

BATCH = "batch"


@dataclass(frozen=True)
class Port:
    """Type and shape that an input must accept or an output deliver.

    ``types``: ONNX Runtime's names (``tensor(float)``). ``shape``: sizes; :data:`BATCH` may be fixed at
    1, any other name must be dynamic; None leaves rank and sizes open.
    """

    types: tuple[str, ...]
    shape: tuple[int | str, ...] | None

    def accepts(self, type_name: str, shape: Sequence[int | str | None]) -> bool:
        if type_name not in self.types:
            return False
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(map(_fits, shape, self.shape))

    def __str__(self) -> str:
        return f"{' or '.join(self.types)} {'of any shape' if self.shape is None else list(self.shape)}"


class ExtractorModel(ABC):
    """A compiled network of an extractor; one with a ``dynamic_batch`` takes several rows at a time."""

    dynamic_batch: bool

    @abstractmethod
    def run(self, *inputs: Array) -> Array:
        """The first output for the inputs in the graph's order."""

    def map_rows(self, rows: Sequence[Array], run: Callable[[Array], Array]) -> list[Array]:
        """``run`` over rows: those of equal shape as one batch where the network takes one, else one by one.

        Rows are never padded: nothing tells these networks to ignore padding in every layer.
        """
        groups: dict[object, list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(row.shape if self.dynamic_batch else index, []).append(index)
        results: dict[int, Array] = {}
        for indices in groups.values():
            outputs = run(np.stack([rows[index] for index in indices]))
            results.update(zip(indices, outputs, strict=True))
        return [results[index] for index in range(len(rows))]


class OnnxModel(ExtractorModel):
    """A graph whose inputs are given by position and whose first output is taken. Safe for several threads.

    Raises:
        CheckpointError: the file is no readable model, or its interface is another one.
    """

    def __init__(self, path: str | Path, inputs: Sequence[Port], output: Port, threads: int) -> None:
        self.path = Path(path)
        self._session = _open(self.path, threads)
        give_back_heap()
        given, given_outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(given) != len(inputs):
            raise CheckpointError(f"{self.path}: {len(given)} inputs, expected {len(inputs)}")
        for port, expected in zip([*given, given_outputs[0]], [*inputs, output], strict=True):
            self._check(port, expected)
        self._inputs = [port.name for port in given]
        self._output = given_outputs[0].name
        self.dynamic_batch = not any(isinstance(port.shape[0], int) for port in given)

    def run(self, *inputs: Array) -> Array:
        return self._session.run([self._output], dict(zip(self._inputs, inputs, strict=True)))[0]

    def _check(self, port: Any, expected: Port) -> None:
        if not expected.accepts(port.type, port.shape):
            given = f"{port.name} is {port.type} {port.shape}"
            raise CheckpointError(f"{self.path}: {given}, expected {expected}")


def _open(path: Path, threads: int) -> onnxruntime.InferenceSession:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    import onnxruntime  # 20 MB, which who only asks for a checkpoint's extractors does without

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    # Waiting threads would otherwise burn the cores that the other models of the process need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    share_arena(options)
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own errors share no narrower base
        raise CheckpointError(f"{path}: not a readable ONNX model ({error})") from error


def _fits(given: int | str | None, expected: int | str) -> bool:
    if not isinstance(given, int):
        return True
    return given == (1 if expected == BATCH else expected)
