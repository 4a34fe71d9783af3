"""A stand-in for the module ``tensorrt``: calls that 10.14 and 11 have, with their arguments and no others.

Engines compute: ONNX Runtime runs the graph, on the memory that was bound. What TensorRT forbids is an error
here, such as work in too little memory, or the change of a context after its work was captured.
"""

from __future__ import annotations

import ctypes
import enum
import json
import math
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

from cuda_fake import FakeCuda

DataType = enum.Enum("DataType", "FLOAT HALF BF16 INT8 INT32 INT64 BOOL")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")
Strategy = enum.IntEnum(
    "ExecutionContextAllocationStrategy", "STATIC ON_PROFILE_CHANGE USER_MANAGED", start=0
)
PreviewFeature = enum.IntEnum("PreviewFeature", "RUNTIME_ACTIVATION_RESIZE_10_10")
NETWORK_FLAGS = {
    10: enum.IntEnum("NetworkDefinitionCreationFlag", "EXPLICIT_BATCH STRONGLY_TYPED", start=0),
    11: enum.IntEnum("NetworkDefinitionCreationFlag", {"STRONGLY_TYPED": 0}),
}
BUILDER_FLAGS = {
    10: enum.IntEnum("BuilderFlag", "FP16 BF16 INT8 DEBUG REFIT TF32 OBEY_PRECISION_CONSTRAINTS", start=0),
    11: enum.IntEnum("BuilderFlag", "DEBUG REFIT TF32 STRICT_NANS", start=0),
}
TYPES = {
    TensorProto.FLOAT: (DataType.FLOAT, np.float32),
    TensorProto.FLOAT16: (DataType.HALF, np.float16),
    TensorProto.INT64: (DataType.INT64, np.int64),
    TensorProto.INT32: (DataType.INT32, np.int32),
    TensorProto.BOOL: (DataType.BOOL, np.bool_),
}
SCRATCH_BYTES_A_ELEMENT = 2


def fake_tensorrt(cuda: FakeCuda, version: str = "10.14.1.48", device: str = "fake H100") -> Any:
    """The module. ``device`` is what timing caches are bound to.

    As TensorRT does, it builds, loads and runs on the GPU that is the calling thread's own: elsewhere is an
    error.
    """
    major = int(version.split(".")[0])

    class Logger:
        WARNING = 2

        def __init__(self, min_severity: int) -> None:
            assert min_severity == self.WARNING

    class Parser:
        def __init__(self, network: Network, logger: Logger) -> None:
            self._network, self._errors = network, []

        def parse(self, model: bytes, path: str | None = None) -> bool:
            try:
                self._network.model = onnx.load_model_from_string(model)
                onnx.checker.check_model(self._network.model)
            except Exception as error:
                self._errors.append(str(error))
                return False
            return True

        @property
        def num_errors(self) -> int:
            return len(self._errors)

        def get_error(self, index: int) -> str:
            return self._errors[index]

    class Builder:
        def __init__(self, logger: Logger) -> None:
            assert isinstance(logger, Logger)

        def create_network(self, flags: int = 0) -> Network:
            return Network(flags)

        def create_builder_config(self) -> Config:
            return Config(device)

        def create_optimization_profile(self) -> Profile:
            return Profile()

        def build_serialized_network(self, network: Network, config: Config) -> bytearray | None:
            assert cuda.is_current
            strongly_typed = network.flags >> NETWORK_FLAGS[major].STRONGLY_TYPED & 1
            if not strongly_typed or config.timing_cache is None:
                return None
            for profile in config.profiles:
                profile.check(network.model)
            config.timing_cache.content = config.timing_cache.header + b":timed"
            content = {
                "version": version,
                "model": network.model.SerializeToString().hex(),
                "profiles": [profile.shapes for profile in config.profiles],
                "flags": sorted(flag.name for flag in config.flags),
                "previews": sorted(feature.name for feature in config.previews),
            }
            return bytearray(json.dumps(content).encode())

    class Config(_Config):
        flags_type = BUILDER_FLAGS[major]

    class Runtime:
        def __init__(self, logger: Logger) -> None:
            assert isinstance(logger, Logger)

        def deserialize_cuda_engine(self, serialized_engine: bytes) -> FakeEngine | None:
            assert cuda.is_current
            try:
                content = json.loads(serialized_engine)
            except ValueError:
                return None
            return FakeEngine(cuda, content) if content["version"] == version else None

    return SimpleNamespace(
        __spec__=ModuleSpec("tensorrt", None),  # torch looks for it when it first sets up its compiler
        __version__=version, Logger=Logger, Builder=Builder, OnnxParser=Parser, Runtime=Runtime,
        DataType=DataType, TensorIOMode=TensorIOMode, ExecutionContextAllocationStrategy=Strategy,
        PreviewFeature=PreviewFeature, NetworkDefinitionCreationFlag=NETWORK_FLAGS[major],
        BuilderFlag=BUILDER_FLAGS[major], IBuilderConfig=Config, IOptimizationProfile=Profile,
        ITimingCache=TimingCache, ICudaEngine=FakeEngine, IExecutionContext=FakeContext,
    )  # fmt: skip


class Network:
    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.model: onnx.ModelProto


class TimingCache:
    def __init__(self, header: bytes, content: bytes) -> None:
        self.header, self.content = header, content

    def serialize(self) -> bytearray:
        return bytearray(self.content)


class _Config:
    flags_type: Any

    def __init__(self, device: str) -> None:
        self._header = device.encode()
        self.flags = {self.flags_type.TF32}
        self.previews: set[Any] = set()
        self.profiles: list[Profile] = []
        self.timing_cache: TimingCache | None = None

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(self.flags_type(flag))

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        (self.previews.add if enable else self.previews.discard)(PreviewFeature(feature))

    def create_timing_cache(self, serialized_timing_cache: bytes) -> TimingCache:
        return TimingCache(self._header, serialized_timing_cache)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        if cache.content and not cache.content.startswith(self._header) and not ignore_mismatch:
            return False
        self.timing_cache = cache
        return True

    def get_timing_cache(self) -> TimingCache | None:
        return self.timing_cache

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[tuple[int, ...]]] = {}

    def set_shape(self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]) -> None:
        if not all(0 <= low <= best <= high for low, best, high in zip(min, opt, max, strict=True)):
            raise ValueError(f"{input}: {min}, {opt}, {max}")
        self.shapes[input] = [min, opt, max]

    def check(self, model: onnx.ModelProto) -> None:
        for port in model.graph.input:
            dims = port.type.tensor_type.shape.dim
            for shape in self.shapes[port.name]:
                assert len(shape) == len(dims), port.name
                assert all(not d.dim_value or d.dim_value == n for d, n in zip(dims, shape, strict=True))


class FakeEngine:
    def __init__(self, cuda: FakeCuda, content: dict[str, Any]) -> None:
        model = onnx.load_model_from_string(bytes.fromhex(content["model"]))
        self.cuda, self.content = cuda, content
        self.inputs = {port.name: port.type.tensor_type for port in model.graph.input}
        self.outputs = {port.name: port.type.tensor_type for port in model.graph.output}
        self.ports = {**self.inputs, **self.outputs}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    @property
    def num_io_tensors(self) -> int:
        return len(self.ports)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.content["profiles"])

    def get_tensor_name(self, index: int) -> str:
        return list(self.ports)[index]

    def get_tensor_mode(self, name: str) -> Any:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return TYPES[self.ports[name].elem_type][0]

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.content["profiles"][profile_index][name]]

    def create_execution_context(self, strategy: Any = Strategy.STATIC) -> FakeContext:
        assert strategy == Strategy.USER_MANAGED
        return FakeContext(self)


class FakeContext:
    def __init__(self, engine: FakeEngine) -> None:
        self._engine, self._cuda = engine, engine.cuda
        self._profile: int | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._scratch = 0
        self._ran_at: dict[str, tuple[int, ...]] | None = None
        self._captured = False

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self._change()
        self._cuda.stream(stream_handle)
        self._profile = profile_index
        return 0 <= profile_index < self._engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._change()
        low, _, high = self._engine.get_tensor_profile_shape(name, self._profile)
        if not all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True)):
            return False
        self._shapes[name] = shape
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self._engine.inputs:
            return self._shapes[name]
        sizes = {
            dim.dim_param: size
            for port, shape in self._shapes.items()
            for dim, size in zip(self._engine.inputs[port].shape.dim, shape, strict=True)
            if dim.dim_param
        }
        dims = [dim.dim_param or dim.dim_value for dim in self._engine.ports[name].shape.dim]
        if all(not isinstance(dim, str) or dim in sizes for dim in dims):
            return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims)
        return self._shape_by_trial(name)

    def _shape_by_trial(self, name: str) -> tuple[int, ...]:
        inputs = {
            port: np.zeros(shape, TYPES[self._engine.inputs[port].elem_type][1])
            for port, shape in self._shapes.items()
        }
        return self._engine.session.run([name], inputs)[0].shape

    def update_device_memory_size_for_shapes(self) -> int:
        assert set(self._shapes) == set(self._engine.inputs)
        return SCRATCH_BYTES_A_ELEMENT * sum(math.prod(shape) for shape in self._shapes.values())

    def set_device_memory(self, memory: int, size: int) -> None:
        self._change()
        self._scratch = size

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._change()
        self._addresses[name] = memory
        return name in self._engine.ports

    def execute_async_v3(self, stream_handle: int) -> bool:
        assert self._cuda.is_current
        if self._scratch < self.update_device_memory_size_for_shapes():
            raise AssertionError("too little device memory")
        if set(self._addresses) != set(self._engine.ports):
            return False
        stream = self._cuda.stream(stream_handle)
        if stream.capturing:
            assert self._ran_at == self._shapes, "captured before a first run at these shapes"
            self._captured = True
        self._ran_at = dict(self._shapes)
        shapes = {name: self.get_tensor_shape(name) for name in self._engine.ports}
        addresses = dict(self._addresses)
        stream.submit("run", lambda: self._compute(shapes, addresses))
        return True

    def _compute(self, shapes: dict[str, tuple[int, ...]], addresses: dict[str, int]) -> None:
        views = {name: self._memory(name, shapes[name], address) for name, address in addresses.items()}
        names = list(self._engine.outputs)
        results = self._engine.session.run(names, {name: views[name] for name in self._engine.inputs})
        for name, result in zip(names, results, strict=True):
            assert result.shape == shapes[name], name
            views[name][...] = result

    def _memory(self, name: str, shape: tuple[int, ...], address: int) -> np.ndarray:
        dtype = np.dtype(TYPES[self._engine.ports[name].elem_type][1])
        size = math.prod(shape) * dtype.itemsize
        buffer = (ctypes.c_char * size).from_address(address)
        return np.frombuffer(buffer, dtype=dtype).reshape(shape)

    def _change(self) -> None:
        assert not self._captured, "the context of a captured graph must not be changed"
