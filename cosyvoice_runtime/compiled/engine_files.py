"""TensorRT engines in a directory, each with a manifest of what it was built from, for the GPU at hand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.compiled.cuda import Cuda
from cosyvoice_runtime.compiled.export.graph_files import graph_of
from cosyvoice_runtime.compiled.gpu import present_gpu
from cosyvoice_runtime.compiled.manifest import Manifest, require_current, stale_reasons
from cosyvoice_runtime.compiled.shapes import Profile
from cosyvoice_runtime.compiled.tensorrt_build import build_engine
from cosyvoice_runtime.compiled.tensorrt_engine import TensorRTEngine
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.sha256 import sha256_of

TIMING_CACHE = "timing.cache"
"""Of all builds in a directory; outlives the engines."""


def engine_of(directory: Path, name: str) -> Path:
    """File of an engine; its manifest lies beside it."""
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
