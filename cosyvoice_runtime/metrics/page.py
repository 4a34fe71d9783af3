"""Metrics in Prometheus's text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import attrgetter

from cosyvoice_runtime.metrics.series import Series


def render_page(found: Mapping[Series, Sequence[float]]) -> str:
    """The page of these series, those of one name together."""
    lines: list[str] = []
    for name, family in groupby(sorted(found, key=attrgetter("name", "labels")), attrgetter("name")):
        members = list(family)
        lines.append(f"# HELP {name} {_escape(members[0].description)}")
        lines.append(f"# TYPE {name} {members[0].kind}")
        lines += [sample for series in members for sample in _samples(series, found[series])]
    return "".join(f"{line}\n" for line in lines)


def _samples(series: Series, numbers: Sequence[float]) -> Iterator[str]:
    if series.kind != "histogram":
        yield _sample(series.name, series.labels, numbers[0])
        return
    total, *counts = numbers
    bounds = [*map(repr, series.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(counts), strict=True):
        yield _sample(f"{series.name}_bucket", (*series.labels, ("le", bound)), count)
    yield _sample(f"{series.name}_sum", series.labels, total)
    yield _sample(f"{series.name}_count", series.labels, sum(counts))


def _sample(name: str, labels: tuple[tuple[str, str], ...], value: float) -> str:
    quoted = (f'{label}="{_escape(text, quotes=True)}"' for label, text in labels)
    return f"{name}{{{','.join(quoted)}}} {value!r}"


def _escape(text: str, quotes: bool = False) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quotes else escaped
