"""Numbers that processes tell about themselves, and the page that shows them to Prometheus."""

from cosyvoice_runtime.metrics.metrics import Histogram, Metric, Metrics
from cosyvoice_runtime.metrics.page import render_page
from cosyvoice_runtime.metrics.series import Series
from cosyvoice_runtime.metrics.shared_file import DIRECTORY_VARIABLE, read_series

__all__ = [
    "DIRECTORY_VARIABLE",
    "Histogram",
    "Metric",
    "Metrics",
    "Series",
    "read_series",
    "render_page",
]
