"""Results for reading: a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = (
    "load",
    "requests",
    "errors",
    "TTFB p50 / p95 / p99 ms",
    "gap p50 / p95 ms",
    "continuous",
    "silences",
    "latency p50 / p95 ms",
    "RTF",
    "audio s/s",
    "client lag p99 ms",
)
STATISTICS_COLUMNS = ("load", "model", "requests", "failed", "batch", "queue ms", "compute ms")


def markdown(report: dict[str, Any]) -> str:
    """The whole report as text."""
    machine = report["machine"]
    hardware = ", ".join([machine["cpu"], f"{machine['cores']} cores", *machine["gpus"]])
    parts = [
        f"# Client-server benchmark, {report['mode']}",
        f"{report['time']}, commit {report['commit']}, {hardware}, "
        f"{report['server'].get('name', 'server')} {report['server'].get('version', '')}",
        f"`{report['command']}`",
        table(COLUMNS, [_row(level) for level in report["levels"]]),
        "Continuous: share of all requests answered without a silence over 100 ms for a listener who plays "
        "from the first chunk on. RTF: wall time per second of audio. Client lag: how late the "
        "benchmark itself reacted, which its figures contain.",
        "## Triton's own counters, mean per request",
        table(STATISTICS_COLUMNS, [row for level in report["levels"] for row in _statistics_rows(level)]),
    ]
    return "\n\n".join(parts) + "\n"


def load_name(level: dict[str, Any]) -> str:
    """Name of a level, by its number of clients or of requests per second."""
    if "clients" in level:
        who = "listener" if level.get("listen") else "client"
        return f"{level['clients']} {who}" + ("" if level["clients"] == 1 else "s")
    return f"{level['rate']:g}/s {level['arrivals']}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _row(level: dict[str, Any]) -> list[str]:
    figures = level["figures"]
    return [
        load_name(level),
        str(figures["requests"]),
        ", ".join(f"{count} {kind}" for kind, count in figures["errors"].items()) or "0",
        _percentiles(figures["ttfb_ms"], "p50", "p95", "p99"),
        _percentiles(figures["gap_ms"], "p50", "p95"),
        "-" if figures["continuous_share"] is None else f"{figures['continuous_share']:.1%}",
        f"{figures['underruns']} ({figures['underrun_s']:.2f} s)",
        _percentiles(figures["latency_ms"], "p50", "p95"),
        "-" if figures["rtf"] is None else f"{figures['rtf']:.4f}",
        "-" if figures["audio_s_per_s"] is None else f"{figures['audio_s_per_s']:.1f}",
        _percentiles(level["client_lag_ms"], "p99"),
    ]


def _statistics_rows(level: dict[str, Any]) -> list[list[str]]:
    return [
        [
            load_name(level),
            model,
            f"{figures['requests']}",
            f"{figures['failures']}",
            f"{figures['mean_batch']:.2f}",
            f"{figures['queue_ms']:.2f}",
            f"{figures['compute_infer_ms']:.2f}",
        ]
        for model, figures in level["triton"].items()
    ]


def _percentiles(figures: dict[str, float] | None, *names: str) -> str:
    return "-" if figures is None else " / ".join(f"{figures[name]:.0f}" for name in names)
