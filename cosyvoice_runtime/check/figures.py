"""How far numbers are from those in float32."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats


def divergence(found: Floats, expected: Floats) -> float:
    """Kullback-Leibler divergence of what logits ``[T, V]`` say, in nats a token."""
    expected_log, found_log = _log_softmax(expected), _log_softmax(found)
    return float((np.exp(expected_log) * (expected_log - found_log)).sum(-1).mean())


def same_best(found: Floats, expected: Floats) -> float:
    """Share of logits ``[T, V]`` whose largest is the same."""
    return float((found.argmax(-1) == expected.argmax(-1)).mean())


def decibels(found: Floats, expected: Floats) -> float:
    """Ratio of signal to error; infinite without an error."""
    error = np.square(np.asarray(found, np.float64) - expected).mean()
    return (
        float(10 * np.log10(np.square(np.asarray(expected, np.float64)).mean() / error)) if error else np.inf
    )


def _log_softmax(logits: Floats) -> Floats:
    shifted = np.asarray(logits, np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
