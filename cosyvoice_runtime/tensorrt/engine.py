"""A deserialised TensorRT engine, its execution contexts, and what both need of CUDA.

Written for TensorRT 10.14 and 11, of which only calls that both have are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.gpu.cuda_graphs import uncollected


class Cuda:
    """Streams and graphs of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def current(self) -> AbstractContextManager[object]:
        """Context in which this device is the calling thread's own.

        TensorRT builds, loads and runs on the thread's GPU, which is the first one unless told otherwise
        (TensorRT's ``NvInferRuntime.h``, ``IRuntime``; ``NvInfer.h``, ``IBuilder``).
        """
        return torch.cuda.device(self.device)

    def current_stream(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def new_stream(self) -> Any:
        return torch.cuda.Stream(self.device)

    def on(self, stream: Any) -> Any:
        """Context in which tensors are copied and allocated on a stream."""
        return torch.cuda.stream(stream)

    def capture(self, stream: Any, work: Callable[[], None]) -> Any:
        """A graph of what ``work`` enqueues; it is not run."""
        graph = torch.cuda.CUDAGraph()
        with uncollected(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            work()
        return graph


Shapes = Mapping[str, tuple[int, ...]]


class TensorRTEngine:
    """An engine that was read from its file.

    Args:
        trt: the module ``tensorrt``.

    Raises:
        EngineFileError: the file is missing, or TensorRT does not take it.
    """

    def __init__(self, trt: Any, path: Path, cuda: Cuda) -> None:
        if not path.is_file():
            raise EngineFileError(f"{path} is missing")
        self._trt, self.path, self.cuda = trt, path, cuda
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))  # must outlive the engine
        with cuda.current():
            self._engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        if self._engine is None:
            raise EngineFileError(f"{path}: TensorRT {trt.__version__} can't load this engine")
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        is_input = {name: self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self.inputs = [name for name in names if is_input[name]]
        self.outputs = [name for name in names if not is_input[name]]
        self.dtypes = {name: self._dtype(name) for name in names}
        self.num_profiles: int = self._engine.num_optimization_profiles

    def profile_of(self, shapes: Shapes) -> int:
        """The first profile that covers the shapes; an EngineFileError if none does."""
        for profile in range(self.num_profiles):
            if all(self._covers(profile, name, shape) for name, shape in shapes.items()):
                return profile
        raise EngineFileError(f"{self.path}: built for other shapes than {dict(shapes)}")

    def context(self, profile: int, stream: Any) -> TensorRTContext:
        """A context of its own, without memory of its own."""
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._engine.create_execution_context(strategy)
        if context is None:
            raise EngineFileError(f"{self.path}: no execution context can be made")
        _require(context.set_optimization_profile_async(profile, stream.cuda_stream), "profile", profile)
        return TensorRTContext(self, context)

    def _covers(self, profile: int, name: str, shape: tuple[int, ...]) -> bool:
        least, _, greatest = (tuple(dims) for dims in self._engine.get_tensor_profile_shape(name, profile))
        return len(shape) == len(least) and all(
            low <= size <= high for low, size, high in zip(least, shape, greatest, strict=True)
        )

    def _dtype(self, name: str) -> torch.dtype:
        kinds = self._trt.DataType
        dtypes = {
            kinds.FLOAT: torch.float32, kinds.HALF: torch.float16, kinds.BOOL: torch.bool,
            kinds.INT64: torch.int64, kinds.INT32: torch.int32,
        }  # fmt: skip
        return dtypes[self._engine.get_tensor_dtype(name)]


class TensorRTContext:
    """One execution context: set shapes, bind memory, enqueue."""

    def __init__(self, engine: TensorRTEngine, context: Any) -> None:
        self.engine, self._context = engine, context

    def set_shapes(self, shapes: Shapes) -> None:
        for name, shape in shapes.items():
            _require(self._context.set_input_shape(name, shape), f"shape of {name}", shape)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an input or output, once all input shapes are set."""
        return tuple(self._context.get_tensor_shape(name))

    def scratch_bytes(self) -> int:
        """Memory that a run at the set shapes works in."""
        size: int = self._context.update_device_memory_size_for_shapes()
        return size

    def bind(self, tensors: Mapping[str, Tensor], scratch: Tensor) -> None:
        """Where to read inputs, write outputs and work; all must stay in place until the work is done."""
        self._context.set_device_memory(scratch.data_ptr(), scratch.numel())
        for name, tensor in tensors.items():
            if tensor.dtype != self.engine.dtypes[name] or not tensor.is_contiguous():
                wanted = self.engine.dtypes[name]
                raise ValueError(f"{name}: contiguous {wanted} expected, got {tensor.dtype}")
            _require(self._context.set_tensor_address(name, tensor.data_ptr()), "address of", name)

    def enqueue(self, stream: Any) -> None:
        _require(self._context.execute_async_v3(stream.cuda_stream), "work of", self.engine.path)


def _require(accepted: bool, what: str, value: object) -> None:
    if not accepted:
        raise RuntimeError(f"TensorRT refused the {what} {value}")
