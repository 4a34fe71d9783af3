"""Names of token2wav's graphs on a CPU, for who writes and who opens them, which needs no ``onnx``."""

from __future__ import annotations

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
