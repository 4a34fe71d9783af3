"""Numbers that processes tell about themselves; ``page`` shows them to Prometheus."""

from cosyvoice_runtime.metrics.metrics import DIRECTORY_VARIABLE, Histogram, Metric, Metrics

__all__ = [
    "DIRECTORY_VARIABLE",
    "Histogram",
    "Metric",
    "Metrics",
]
