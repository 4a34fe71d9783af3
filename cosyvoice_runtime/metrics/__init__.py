"""Numbers that processes tell about themselves, and the page that shows them to Prometheus."""

from cosyvoice_runtime.metrics.metrics import DIRECTORY_VARIABLE, Histogram, Metric, Metrics
from cosyvoice_runtime.metrics.page import ModelMetrics, read_samples, render_page

__all__ = [
    "DIRECTORY_VARIABLE",
    "Histogram",
    "Metric",
    "Metrics",
    "ModelMetrics",
    "read_samples",
    "render_page",
]
