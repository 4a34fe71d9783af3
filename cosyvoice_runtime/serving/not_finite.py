"""Errors of NaN and infinity: counted by stage, and reported with a remedy."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cosyvoice_runtime.errors import CHECK_TELLS, FLOW, SPEECH_LM, VOCODER, NotFiniteError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings

logger = logging.getLogger(__name__)

METRIC = "cosyvoice_not_finite_total"
ABOUT = "Answers that were refused because a network gave NaN or infinity, by the first such stage."
DAMAGED = f"its weights may be damaged: {CHECK_TELLS}"


class NotFiniteCount:
    """Counts the errors of one model, and knows the operator's remedy for each stage."""

    def __init__(self, metrics: Metrics, remedies: Mapping[str, str]) -> None:
        self._remedies = remedies
        self._counters = {stage: metrics.counter(METRIC, ABOUT, stage=stage) for stage in remedies}

    def with_remedy(self, error: Exception) -> Exception:
        """The error with its remedy, counted and logged; any other error unchanged."""
        if not isinstance(error, NotFiniteError):
            return error
        self._counters[error.stage].add(1)
        told = NotFiniteError(error.stage, self._remedies[error.stage])
        logger.error("%s", told)
        return told


def speech_lm_remedies(settings: TensorrtLlmSettings) -> dict[str, str]:
    """The remedies for logits of the speech LM that are not finite."""
    narrow = {
        "onnx": ("weight_format", settings.weight_format, "float32"),
        "tensorrt_llm": ("dtype", settings.dtype, "bfloat16"),
    }
    usual = "dtype", settings.dtype, "float32"
    return {SPEECH_LM: _remedy(settings.name, *narrow.get(settings.engine, usual))}


def token2wav_remedies(settings: Token2WavSettings) -> dict[str, str]:
    """The remedies for mel frames or samples that are not finite."""
    on_onnx = settings.backend == "onnx"
    field, value = ("weight_format", settings.weight_format) if on_onnx else ("dtype", settings.dtype)
    vocoder = DAMAGED if on_onnx else _remedy(settings.name, field, value)
    return {FLOW: _remedy(settings.name, field, value), VOCODER: vocoder}


def _remedy(model: str, field: str, value: str, wide: str = "float32") -> str:
    if value in ("float32", wide):
        return DAMAGED
    variable = f"COSYVOICE_{model.upper()}__{field.upper()}"
    narrow = f"{value} may be too narrow for its numbers: start again with {variable}={wide} ./run.sh 1 3"
    return f"{narrow}; if that changes nothing, {DAMAGED}"
