"""Sentences that are spoken in two ways: work in processes, and what of the difference is chance."""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol

from measuring.machine import ROOT, provenance

DEMO_VOICE = ROOT / "demo_voice"
FEWEST_WORDS = 5
Row = dict[str, Any]
Task = tuple[int, str]
"""A seed and a sentence."""


def parser(description: str) -> argparse.ArgumentParser:
    """The options that such a measurement has."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--checkpoint", type=Path, default=DEMO_VOICE)
    found.add_argument("--script", type=Path, default=DEMO_VOICE / "held_out.json")
    found.add_argument("--sentences", type=int, default=100)
    found.add_argument("--seeds", type=int, default=1, help="readings of each sentence")
    found.add_argument("--processes", type=int, default=2)
    found.add_argument(
        "--json", type=Path, help="file for the figures and all rows, as far as they have come"
    )
    return found


def tasks(script: Path, sentences: int, seeds: Sequence[int]) -> list[Task]:
    """The first sentences of a list in JSON that have some words, read with each seed."""
    texts = [text for text in json.loads(script.read_text("utf-8")) if len(text.split()) >= FEWEST_WORDS]
    return [
        (seed * len(texts) + place, text) for seed in seeds for place, text in enumerate(texts[:sentences])
    ]


class Listener(Protocol):
    """Has a sentence spoken in all ways and listens to each."""

    def row(self, task: Task) -> Row:
        """The sentence's words (``words``), of each way how many of them are wrong (``errors``), and more."""


def measured(
    make: Callable[..., Listener], made_of: tuple[Any, ...], todo: Sequence[Task], processes: int
) -> Iterator[list[Row]]:
    """The rows so far, now and then, and at the end.

    Args:
        make: a listener, once in each process.
        made_of: its arguments.
    """
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(processes, _begin, (make, *made_of)) as pool:
        for row in pool.imap_unordered(_listen, todo):
            rows.append(row)
            if len(rows) % 20 == 0 or len(rows) == len(todo):
                yield rows


_listener: Listener | None = None
"""This process's."""


def _begin(make: Callable[..., Listener], *made_of: Any) -> None:
    global _listener
    _listener = make(*made_of)


def _listen(task: Task) -> Row:
    assert _listener is not None
    return _listener.row(task)


def compared(rows: Sequence[Row], before: str, after: str) -> Row:
    """Word error rates of the two ways, their difference and its standard error."""
    count = sum(row["words"] for row in rows)
    rates = {key: sum(row["errors"][key] for row in rows) / count for key in (before, after)}
    difference = rates[after] - rates[before]
    left = [row["errors"][after] - row["errors"][before] - difference * row["words"] for row in rows]
    return {
        "utterances": len(rows),
        "words": count,
        "word_error_rate": rates,
        "difference": difference,
        "standard_error": stdev(left) / len(rows) ** 0.5 / mean(row["words"] for row in rows),
    }


def tell(summary: Row, rows: Sequence[Row], path: Path | None) -> None:
    """Print the figures, and write them with all rows."""
    print(json.dumps(summary), flush=True)
    if path:
        text = json.dumps({**summary, "rows": list(rows), **provenance()}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
