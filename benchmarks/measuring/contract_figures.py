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

SUMMED = frozenset(
    (
        *("requests", "underrun_requests", "underrun_s", "refused", "inaudible"),
        *("answers", "sentences", "units", "joins"),
    )
)
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

HEARD = {
    "answers": ("heard", "Heard is the number of answers, of all seeds, that the columns behind it are of."),
    "word_errors": (
        "WER %",
        "WER is the mean of the sentences' rates of wrong words (of characters for Chinese), as "
        "seed-tts-eval counts them, with its standard error.",
    ),
    "likeness": (
        "likeness mean / lowest",
        "Likeness is the cosine between the speaker embeddings of an answer and of the reference.",
    ),
    "seams": (
        "seam dB joins / elsewhere",
        "Seams are mean steps of loudness over 20 ms, where chunks join and everywhere else.",
    ),
}
"""Columns of what was heard, each with what the legend says of it; those that no row has are left out."""


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
    heard = heard_columns(rows)
    columns = [*COLUMNS, *(HEARD[name][0] for name in heard)]
    cells = [
        [
            row["wire"],
            f"{row['rate']:g}",
            *_cells(row["figures"]),
            *(_heard(name, (row["figures"].get("heard") or {}).get(name)) for name in heard),
        ]
        for row in rows
    ]
    return table(columns, cells)


def legend(rows: Sequence[dict[str, Any]]) -> str:
    """Says what the columns of the table are."""
    return " ".join([LEGEND, *(HEARD[name][1] for name in heard_columns(rows))])


def heard_columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The figures of what was heard that some row has."""
    return [name for name in HEARD if any(name in (row["figures"].get("heard") or {}) for row in rows)]


def _heard(name: str, figures: Any) -> str:
    if figures is None:
        return "-"
    if name == "answers":
        return f"{figures}"
    if name == "likeness":
        return _of(figures, ".3f", "mean", "lowest")
    if name == "word_errors":
        return _with_error(figures["mean"], figures["standard_error"])
    at_joins = _with_error(figures["at_joins_db"], figures["standard_error_db"])
    return f"{at_joins} / {_with_error(figures['elsewhere_db'], None)}"


def _with_error(value: float | None, error: float | None) -> str:
    margin = "" if error is None else f" ± {error:.1f}"
    return "-" if value is None else f"{value:.1f}{margin}"


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
