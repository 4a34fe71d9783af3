"""From an ONNX file to a TensorRT engine.

Networks are strongly typed: every type is in the graph. TensorRT 10 has to be told so, TensorRT 11 knows no
other kind and ignores the flag.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cosyvoice_runtime.compiled.ports import GraphPorts
from cosyvoice_runtime.compiled.shapes import Profile
from cosyvoice_runtime.errors import EngineFileError

logger = logging.getLogger(__name__)


def build_engine(
    trt: Any, onnx_file: Path, profiles: Sequence[Profile], timing_cache: bytes
) -> tuple[bytes, bytes]:
    """The serialized engine, and the timing cache with what was measured for it.

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
