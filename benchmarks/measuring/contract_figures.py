"""Figures of the field's contract: of one run, of its seeds together, and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from measuring.audible import heard_at
from measuring.figures import Figures, spread, summarise
from measuring.load import Sample
from measuring.report import table

SUMMED = frozenset({"requests", "underrun_requests", "underrun_s", "refused", "inaudible"})
"""These figures are sums over the seeds, so that no seed's hides; all others are medians."""
COLUMNS = (
    "wire",
    "RPS",
    "actual RPS",
    "underrun req.",
    "underruns s",
    "first byte p50 / p95 / p99 ms",
    "TTFA p50 / p95 / p99 ms",
    "E2E p95 ms",
    "leading silence p95 ms",
    "RTF p50 / p95",
    "in flight mean / peak",
    "refused",
    "errors",
    "sent late p99 ms",
    "client CPU",
)
LEGEND = (
    "TTFA is the first audible audio, for who plays from the first byte on: the first of two windows of "
    "20 ms in a row over -45 dBFS. Times count from when a request is sent. Underruns are silences of any "
    "length without a cushion. They, refusals and errors are sums of the seeds; all else is the median of "
    "the seeds. RTF is the time of an answer for a second of its audio. Client CPU is in cores."
)


def contract_figures(samples: Sequence[Sample], warmup_s: float, seconds: float) -> Figures:
    """Figures of the requests that were due in the ``seconds`` after the warm-up; the peak is of both."""
    measured = [sample for sample in samples if sample.started_s >= warmup_s]
    figures = summarise(measured, seconds)
    onsets = [(sample, sample.onset_s) for sample in measured if sample.onset_s is not None]
    heard = [heard_at(sample.timeline.arrivals, onset_s) for sample, onset_s in onsets]
    silences = [sample.timeline.underruns_s for sample in measured]
    return {
        "requests": len(measured),
        "actual_rate": round(len(measured) / seconds, 4),
        "underrun_requests": sum(map(bool, silences)),
        "underrun_s": round(sum(map(sum, silences)), 6),
        "first_byte_ms": figures["ttfb_ms"],
        "audible_ms": spread([at_s for at_s in heard if at_s is not None]),
        "latency_ms": figures["latency_ms"],
        "leading_silence_ms": spread([onset_s for _, onset_s in onsets]),
        "rtf": figures["rtf_per_request"],
        "audio_s_per_s": figures["audio_s_per_s"],
        "in_flight": in_flight(samples, warmup_s, warmup_s + seconds),
        "refused": figures["errors"].pop("unavailable", 0),
        "errors": figures["errors"],
        "inaudible": sum(sample.error is None and sample.onset_s is None for sample in measured),
    }


def in_flight(samples: Sequence[Sample], start_s: float, end_s: float) -> dict[str, float]:
    """Requests in progress: the mean between two times, and the peak of the whole run."""
    spans = [(sample.started_s, sample.started_s + sample.latency_s) for sample in samples]
    busy_s = sum(max(0.0, min(end, end_s) - max(begin, start_s)) for begin, end in spans)
    now = peak = 0
    # At one moment those that end go before those that begin.
    for _, step in sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]):
        now += step
        peak = max(peak, now)
    return {"mean": round(busy_s / (end_s - start_s), 3), "peak": peak}


def of_seeds(runs: Sequence[Figures]) -> Figures:
    """Figures of runs that differ in their seed."""
    return {key: _together(key, [run[key] for run in runs]) for key in runs[0]}


def _together(key: str, values: Sequence[Any]) -> Any:
    if key == "errors":
        return dict(sum(map(Counter, values), Counter()))
    known = [value for value in values if value is not None]
    if not known:
        return None
    if isinstance(known[0], dict):
        return {name: _together(name, [value[name] for value in known]) for name in known[0]}
    return round(sum(known), 6) if key in SUMMED else median(known)


def contract_table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table with a row for each rate."""
    return table(COLUMNS, [[row["wire"], f"{row['rate']:g}", *_cells(row["figures"])] for row in rows])


def _cells(figures: Figures) -> list[str]:
    errors = [
        *figures["errors"].items(),
        *([("inaudible", figures["inaudible"])] * bool(figures["inaudible"])),
    ]
    return [
        f"{figures['actual_rate']:.4f}",
        f"{figures['underrun_requests']} of {figures['requests']}",
        f"{figures['underrun_s']:.3f}",
        _of(figures["first_byte_ms"], ".1f", "p50", "p95", "p99"),
        _of(figures["audible_ms"], ".1f", "p50", "p95", "p99"),
        _of(figures["latency_ms"], ".1f", "p95"),
        _of(figures["leading_silence_ms"], ".0f", "p95"),
        _of(figures["rtf"], ".3f", "p50", "p95"),
        _of(figures["in_flight"], ".3g", "mean", "peak"),
        f"{figures['refused']}",
        ", ".join(f"{count} {kind}" for kind, count in errors) or "0",
        _of(figures["lag_ms"], ".2f", "p99"),
        f"{figures['client_cpu']:.2f}",
    ]


def _of(figures: dict[str, float] | None, form: str, *names: str) -> str:
    return "-" if figures is None else " / ".join(f"{figures[name]:{form}}" for name in names)
