"""The checkpoint's own ONNX files, speech tokenizer and speaker encoder, with names for their free sizes.

They are not written anew: what is published is what voices are made with. Only the batch is freed, if the
graph then computes for a batch what it computes for each row alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from cosyvoice_runtime.audio.mel import FBANK_BINS, LOG_MEL_BINS
from cosyvoice_runtime.errors import CheckpointError

logger = logging.getLogger(__name__)

TOKENIZER_NAME, ENCODER_NAME = "speech_tokenizer", "speaker_encoder"
Shape = tuple[int | str, ...]
INPUTS: dict[str, tuple[Shape, ...]] = {
    TOKENIZER_NAME: (("batch", LOG_MEL_BINS, "frames"), ("batch",)),
    ENCODER_NAME: (("batch", "frames", FBANK_BINS),),
}
"""Inputs in the order of the graphs; the tokenizer's second are lengths."""
PROFILE = {"batch": (1, 1, 8), "frames": (10, 300, 3000)}
"""Least, best and greatest sizes of an engine: 0.1, 3 and 30 s, which is the longest reference."""
PROBE_FRAMES = 120
TOLERANCE = 1e-4


def prepare(name: str, source: Path, target: Path) -> bool:
    """Write a graph with named free sizes; says whether its batch is free.

    A graph whose batch can't be freed keeps a batch of 1, as published, and is written with it.

    Raises:
        CheckpointError: the graph is no readable model, or does not run.
    """
    model = onnx.load(source)
    batched = _rows_are_independent(_named(model, INPUTS[name]))
    if not batched:
        logger.warning("%s: its batch is fixed in the graph and stays 1", source)
    inputs = INPUTS[name] if batched else tuple((1, *shape[1:]) for shape in INPUTS[name])
    free = _named(model, inputs)
    _name_output(free, source)
    onnx.save(free, target)
    return batched


def _named(model: onnx.ModelProto, shapes: Sequence[Shape]) -> onnx.ModelProto:
    """A copy with these input shapes, and without what was written down for others."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for port, shape in zip(copy.graph.input, shapes, strict=True):
        _set_shape(port, shape)
    for port in copy.graph.output:
        port.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    return copy


def _name_output(model: onnx.ModelProto, source: Path) -> None:
    """Give the first output as many sizes as it has; the first is the input's."""
    try:
        rank = _run(model, rows=1).ndim
    except Exception as error:  # the runtime's own errors share no narrower base
        raise CheckpointError(f"{source}: does not run ({error})") from error
    rows = model.graph.input[0].type.tensor_type.shape.dim[0]
    output = model.graph.output[0]
    free = [f"{output.name}_{axis}" for axis in range(1, rank)]
    _set_shape(output, (rows.dim_param or rows.dim_value, *free))


def _set_shape(port: onnx.ValueInfoProto, shape: Shape) -> None:
    tensor = port.type.tensor_type
    tensor.shape.Clear()
    for size in shape:
        dim = tensor.shape.dim.add()
        if isinstance(size, str):
            dim.dim_param = size
        else:
            dim.dim_value = size


def _rows_are_independent(model: onnx.ModelProto) -> bool:
    """Whether two rows give what each gives alone."""
    try:
        together = _run(model, rows=2)
        apart = np.concatenate([_run(model, rows=1, first=row) for row in range(2)])
    except Exception as error:  # as above
        logger.info("a batch of two fails: %s", error)
        return False
    return together.shape == apart.shape and bool(np.allclose(together, apart, atol=TOLERANCE))


def _run(model: onnx.ModelProto, rows: int, first: int = 0) -> np.ndarray[Any, Any]:
    """The first output for rows of noise, of full length where the graph wants lengths."""
    features, *lengths = model.graph.input
    shape = [dim.dim_value or PROBE_FRAMES for dim in features.type.tensor_type.shape.dim]
    noise = np.random.default_rng(0).standard_normal((2, *shape[1:])).astype(np.float32)
    inputs = {port.name: np.full(rows, PROBE_FRAMES, dtype=np.int32) for port in lengths}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {features.name: noise[first : first + rows], **inputs})[0]
