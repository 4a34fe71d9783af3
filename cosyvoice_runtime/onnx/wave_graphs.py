"""Names and files of token2wav's graphs on a CPU, for who writes and who opens them, without ``onnx``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FLOW_ENCODER = "flow_encoder_cpu"
FLOW_ESTIMATOR = "flow_estimator_cpu"
FLOW_TIMES = "flow_times_cpu"
HIFT_F0 = "hift_f0_cpu"
HIFT_DECODER = "hift_decoder_cpu"
GRAPHS = FLOW_ENCODER, FLOW_ESTIMATOR, FLOW_TIMES, HIFT_F0, HIFT_DECODER


class EstimatorFormats(NamedTuple):
    """
    Attributes:
        weights: of the matrices, ``float32`` or ``int8``.
        pages: of keys and values that later calls read, ``float32``, ``float16`` or ``float8``.
    """

    weights: str = "float32"
    pages: str = "float32"


def graph_path(directory: Path, name: str) -> Path:
    """File of a graph."""
    return directory / f"{name}.onnx"
