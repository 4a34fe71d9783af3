"""Triton's counts between two moments."""

from __future__ import annotations

from typing import Any

PHASES = ("queue", "compute_input", "compute_infer", "compute_output")

Statistics = dict[str, Any]


def difference(before: Statistics, after: Statistics) -> dict[str, dict[str, float]]:
    """Per model that was used: requests, failures, executions, mean batch, and mean ms per request by phase.

    Args:
        before, after: ``get_inference_statistics`` as JSON. A model that was loaded in between counts from
            zero.
    """
    earlier = {_key(model): model for model in before.get("model_stats", [])}
    found = {}
    for model in after.get("model_stats", []):
        figures = _model_difference(earlier.get(_key(model), {}), model)
        if figures["requests"] or figures["failures"]:
            found[model["name"]] = figures
    return found


def _model_difference(before: Statistics, after: Statistics) -> dict[str, float]:
    def grown(*path: str) -> int:
        return _number(after, *path) - _number(before, *path)

    requests = grown("inference_stats", "success", "count")
    executions = grown("execution_count")
    figures: dict[str, float] = {
        "requests": requests,
        "failures": grown("inference_stats", "fail", "count"),
        "executions": executions,
        "mean_batch": round(grown("inference_count") / executions, 3) if executions else 0.0,
    }
    for phase in PHASES:
        count = grown("inference_stats", phase, "count")
        nanoseconds = grown("inference_stats", phase, "ns")
        figures[f"{phase}_ms"] = round(nanoseconds / count / 1e6, 3) if count else 0.0
    return figures


def _key(model: Statistics) -> tuple[str, str]:
    return model["name"], model.get("version", "")


def _number(statistics: Statistics, *path: str) -> int:
    """A counter; the JSON leaves out what is zero and writes 64-bit numbers as strings."""
    value: Any = statistics
    for name in path:
        value = value.get(name, {})
    return int(value or 0)
