"""The metrics of a server's processes; ``page`` renders them for Prometheus."""

from cosyvoice_runtime.metrics.metrics import DIRECTORY_VARIABLE, Histogram, Metric, Metrics

__all__ = [
    "DIRECTORY_VARIABLE",
    "Histogram",
    "Metric",
    "Metrics",
]
