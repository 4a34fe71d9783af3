"""TensorRT engines in a directory, each with a manifest of what it was built from, for the GPU at hand."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.flow.torch.layers import GatheredPages
from cosyvoice_runtime.gpu.nvidia import present_gpu
from cosyvoice_runtime.manifest import Manifest, require_current, stale_reasons
from cosyvoice_runtime.tensorrt.engine import Cuda, TensorRTEngine
from cosyvoice_runtime.tensorrt.graph_files import graph_of
from cosyvoice_runtime.tensorrt.shapes import Profile, Sizes

logger = logging.getLogger(__name__)

Dims = tuple[int | str, ...]
Inputs = Mapping[str, Tensor | GatheredPages]
TIMING_CACHE = "timing.cache"
"""The timings of all builds in a directory, which outlive the engines."""


@dataclass(frozen=True)
class GraphPorts:
    """Shapes by name; a size that is free has a name (see :mod:`cosyvoice_runtime.flow.export`)."""

    inputs: Mapping[str, Dims]
    outputs: Mapping[str, Dims]

    @classmethod
    def read(cls, path: Path) -> GraphPorts:
        """The ports of an ONNX file."""
        graph = onnx.load(path).graph
        return cls(_dims(graph.input), _dims(graph.output))

    def input_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(sizes[size] if isinstance(size, str) else size for size in dims)
            for name, dims in self.inputs.items()
        }

    def sizes(self, inputs: Inputs) -> Sizes:
        """The free sizes of given inputs."""
        return {
            dim: size
            for name, dims in self.inputs.items()
            for dim, size in zip(dims, inputs[name].shape, strict=True)
            if isinstance(dim, str)
        }


def _dims(infos: list[onnx.ValueInfoProto]) -> dict[str, Dims]:
    return {
        info.name: tuple(dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in infos
    }


def engine_of(directory: Path, name: str) -> Path:
    """File of an engine, with its manifest in the same folder."""
    return directory / "tensorrt" / name / "model.engine"


def build(directory: Path, name: str, profiles: Sequence[Profile], cuda: Cuda) -> list[str]:
    """Build the engine of a graph unless it is there already; says why it was built.

    Raises:
        EngineFileError: TensorRT, a GPU or the graph is missing, or the graph can't be built.
    """
    trt = _tensorrt()
    wanted, target = _wanted(directory, name, profiles, trt, cuda.device), engine_of(directory, name)

    def write(building: Path) -> None:
        cache = directory / TIMING_CACHE
        timings = cache.read_bytes() if cache.is_file() else b""
        with cuda.current():
            plan, timings = build_engine(trt, graph_of(directory, name), profiles, timings)
        cache.write_bytes(timings)
        (building / target.name).write_bytes(plan)
        wanted.write(building)

    return renew_directory(target.parent, lambda: stale_reasons(target.parent, wanted), write)


def open_engine(directory: Path, name: str, profiles: Sequence[Profile], cuda: Cuda) -> TensorRTEngine:
    """The engine, if it is what would be built here and now.

    Raises:
        EngineFileError: TensorRT, a GPU, the graph or the engine is missing, or the engine is of something
            else.
    """
    trt, path = _tensorrt(), engine_of(directory, name)
    require_current(path.parent, _wanted(directory, name, profiles, trt, cuda.device))
    return TensorRTEngine(trt, path, cuda)


def _wanted(
    directory: Path, name: str, profiles: Sequence[Profile], trt: Any, device: torch.device
) -> Manifest:
    graph = graph_of(directory, name)
    if not graph.is_file():
        raise EngineFileError(f"{graph} is missing: stage 1 writes it")
    gpu = present_gpu(device)
    return Manifest(
        sources={f"{name}.onnx": sha256_of(graph)},
        tools={"tensorrt": str(trt.__version__)},
        gpu=gpu.name,
        compute_capability=gpu.compute_capability,
        options={"profiles": profiles},
    )


def _tensorrt() -> Any:
    try:
        return importlib.import_module("tensorrt")
    except ImportError as error:
        raise EngineFileError(f"backend tensorrt needs the module tensorrt: {error}") from error


def build_engine(
    trt: Any, onnx_file: Path, profiles: Sequence[Profile], timing_cache: bytes
) -> tuple[bytes, bytes]:
    """The serialized engine, and the timing cache with what was measured for it.

    Networks are strongly typed: every type is in the graph. TensorRT 10 has to be told so, TensorRT 11 knows
    no other kind and ignores the flag.

    Args:
        trt: the module ``tensorrt``, or another with its builder.
        timing_cache: of earlier builds on such a GPU; may be empty.

    Raises:
        EngineFileError: the graph can't be parsed or no engine can be built for it.
    """
    log = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse(onnx_file.read_bytes()):
        problems = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        raise EngineFileError(f"{onnx_file}: {'; '.join(problems)}")
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)  # float32 is asked for where its digits matter
    # A context then needs the memory of the shapes at hand, not that of the largest ones.
    config.set_preview_feature(trt.PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10, True)
    cache = config.create_timing_cache(timing_cache)
    if not config.set_timing_cache(cache, False):
        logger.warning("the timing cache is of another GPU or version: every kernel is timed anew")
        config.set_timing_cache(config.create_timing_cache(b""), False)
    for profile in profiles:
        _add_profile(builder, config, GraphPorts.read(onnx_file), profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineFileError(f"{onnx_file}: TensorRT {trt.__version__} built no engine; its log says why")
    return bytes(plan), bytes(config.get_timing_cache().serialize())


def _add_profile(builder: Any, config: Any, ports: GraphPorts, profile: Profile) -> None:
    shapes = [ports.input_shapes({name: sizes[kind] for name, sizes in profile.items()}) for kind in range(3)]
    optimization = builder.create_optimization_profile()
    for name in ports.inputs:
        optimization.set_shape(name, *(shape[name] for shape in shapes))
    if config.add_optimization_profile(optimization) < 0:
        raise EngineFileError(f"TensorRT does not accept the profile {profile}")
