"""Rendered model configurations as Triton reads them, and requests made after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import render

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "model_repo"
MODELS = sorted(path.parent.name for path in TEMPLATES.glob("*/config.pbtxt"))
GPU_MACHINE, CPU_MACHINE = Machine(cores=8, gpu=True), Machine(cores=8, gpu=False)

Arrays = dict[str, np.ndarray[Any, Any]]


def settings_of(file: str, **variables: str) -> Settings:
    """Of a file of deploy/, and of variables beside it."""
    environment = {"COSYVOICE_SETTINGS": str(ROOT / "deploy" / file), **variables}
    machine = CPU_MACHINE if file.startswith("cpu") else GPU_MACHINE
    return Settings.read(environment=environment).resolved(machine)


def rendered(settings: Settings) -> dict[str, Any]:
    """``ModelConfig`` of each model; a field that Triton does not know is an error."""
    files = render(TEMPLATES, settings)
    return {
        model: text_format.Parse(files[Path(model, "config.pbtxt")], model_config_pb2.ModelConfig())
        for model in MODELS
    }


def data_type(port: Any) -> str:
    return model_config_pb2.DataType.Name(port.data_type).removeprefix("TYPE_")


def tensors(config: Any, values: Mapping[str, Any]) -> Arrays:
    """A batch of one with an input for each value, in the configuration's types and dimensions."""
    ports = {port.name: port for port in config.input}
    return {name: _tensor(ports[name], value) for name, value in values.items()}


def problems(config: Any, found: Arrays) -> Iterator[str]:
    """How output tensors of a batch of one differ from the configuration."""
    ports = {port.name: port for port in config.output}
    for name, array in found.items():
        dims = tuple(ports[name].dims) if name in ports else ()
        if name not in ports:
            yield f"{name} is not declared"
        elif array.dtype != np.dtype(_numpy_type(ports[name])):
            yield f"{name} is {array.dtype}, declared is {data_type(ports[name])}"
        elif len(array.shape) != len(dims) + 1 or array.shape[0] != 1 or not _fits(array.shape[1:], dims):
            yield f"{name} is {array.shape}, declared is a batch of {dims}"
    yield from (f"{name} is not sent" for name in ports if name not in found)


def _tensor(port: Any, value: Any) -> np.ndarray[Any, Any]:
    if data_type(port) == "STRING":
        value = str(value).encode()
    array = np.array(value, _numpy_type(port))
    dims = tuple(port.dims)
    array = array.reshape(1, *([1] if not array.ndim else array.shape))
    assert len(array.shape) == len(dims) + 1, port.name
    assert _fits(array.shape[1:], dims), port.name
    return array


def _fits(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    return all(dim in (-1, size) for size, dim in zip(shape, dims, strict=True))


def _numpy_type(port: Any) -> Any:
    return triton_to_np_dtype("BYTES" if data_type(port) == "STRING" else data_type(port))
