"""Results as a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from measuring.report import load_name

HINT = "matplotlib is not installed: pip install matplotlib"


def can_plot() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw time to first audio, and throughput with continuity, over the load."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    levels = [level for level in report["levels"] if level["figures"]["ttfb_ms"]]
    names = [load_name(level) for level in levels]
    figures = [level["figures"] for level in levels]
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{report['mode']}, {report['machine']['cpu']}")
    latency, throughput = figure.subplots(1, 2)
    for percentile in ("p50", "p95", "p99"):
        latency.plot(names, [row["ttfb_ms"][percentile] for row in figures], "o", label=percentile)
    latency.set(ylabel="time to first audio, ms", ylim=(0, None))
    latency.legend()
    throughput.bar(names, [row["audio_s_per_s"] for row in figures], color="lightgrey")
    throughput.set(ylabel="seconds of audio per second")
    continuity = throughput.twinx()
    continuity.plot(names, [100 * row["continuous_share"] for row in figures], "o", color="tab:green")
    continuity.set(ylabel="without a silence over 100 ms, %", ylim=(0, 105))
    figure.savefig(path, dpi=120)
