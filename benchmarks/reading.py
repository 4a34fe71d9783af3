#!/usr/bin/env python3
"""How long the front end takes for texts, and how many of them it reads right.

    python benchmarks/reading.py tests/text/cases/own_*.tsv
    PYTHONPATH=../old python benchmarks/reading.py --accuracy before
    python benchmarks/reading.py --accuracy after

A line of a file has language, kind, written and spoken form, with tabs between. Each case is read alone, and
ten of them as one text, from markup to segments, without the cache. "First" is the first text of a process
that does nothing else, with what it loads. All are processor time, and the least of some, because other
processes' work makes them longer. The other two commands show how many of all cases are read right, by
versions that are added to a report by their name.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.text.frontend import TextFrontEnd
from measuring import accuracy
from measuring.machine import provenance
from measuring.report import table

LINES = 10
"""Cases of a longer text."""
PROCESSES, TIMES = 3, 5
"""First texts of a file, and readings of each text, of which the least counts."""
Text = tuple[str, str]
"""Written form and language."""


class Words:
    """Counts words, in place of a tokenizer."""

    def count(self, text: str) -> int:
        """The words of a text."""
        return len(text.split())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--accuracy", metavar="NAME", help="of this version, which is added to the report")
    parser.add_argument("--report", type=Path, default=Path("benchmarks/results/reading_accuracy.json"))
    options = parser.parse_args()
    if options.accuracy:
        accuracy.measure(options.accuracy, options.report)
    if options.files:
        heads = ["file", "cases", "first ms", "p50", "p99", f"{LINES}: p50", "p99"]
        print(table(heads, list(map(row, options.files))))
        machine = provenance()["machine"]
        print(f"\n{machine['cpu']}, {machine['cores']} cores")


def row(file: Path) -> list[str]:
    """Milliseconds of a file's cases."""
    cases = [line.split("\t") for line in file.read_text("utf-8").splitlines() if line[:1] not in ("#", "")]
    texts = [(written.replace("\\n", "\n"), language) for language, _, written, _ in cases]
    longer = [
        (" ".join(text for text, _ in texts[start : start + LINES]), texts[start][1])
        for start in range(0, len(texts), LINES)
    ]
    firsts = [measured(first, texts[0]) for _ in range(PROCESSES)]
    alone, together = measured(spent, texts), measured(spent, longer)
    return [file.stem, str(len(texts)), f"{min(firsts):.0f}", *shown(alone), *shown(together)]


def measured(measure: Callable[[Any], Any], texts: Any) -> Any:
    """Measure in a process of its own."""
    with get_context("spawn").Pool(1) as process:
        return process.apply(measure, (texts,))


def first(text: Text) -> float:
    """The time of a process's first text."""
    return timed(reader(), text)


def spent(texts: Sequence[Text]) -> list[float]:
    """The least time of each text, once all have been read."""
    read = reader()
    rounds = [[timed(read, text) for text in texts] for _ in range(TIMES + 1)]
    return [min(times) for times in zip(*rounds[1:], strict=True)]


def reader() -> Callable[[str, str], list[str]]:
    """A new front end's way to the segments."""
    return TextFrontEnd(Words(), cached_texts=0).segments


def timed(read: Callable[[str, str], list[str]], text: Text) -> float:
    begun_s = time.thread_time()
    with suppress(CosyVoiceError):  # a text that holds nothing to speak
        read(*text)
    return 1e3 * (time.thread_time() - begun_s)


def shown(times: Sequence[float]) -> list[str]:
    """The median and the 99th percentile."""
    p99 = sorted(times)[min(int(0.99 * len(times)), len(times) - 1)]
    return [f"{statistics.median(times):.2f}", f"{p99:.2f}"]


if __name__ == "__main__":
    main()
