#!/usr/bin/env python3
"""How long it takes to read texts in words: each case of a file alone, and ten of them as one text.

    python benchmarks/reading.py tests/text/cases/own_*.tsv

A line of a file has language, kind, written and spoken form, with tabs between.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cosyvoice_runtime.text.normalise import Normaliser
from measuring.machine import provenance
from measuring.report import table

LINES = 10
"""Cases of a longer text."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    read = Normaliser()
    rows = []
    for file in parser.parse_args().files:
        cases = [
            line.split("\t") for line in file.read_text("utf-8").splitlines() if line[:1] not in ("#", "")
        ]
        language, texts = cases[0][0], [written for _, _, written, _ in cases]
        longer = [" ".join(texts[start : start + LINES]) for start in range(0, len(texts), LINES)]
        rows.append(
            [file.stem, str(len(texts)), *times(read, texts, language), *times(read, longer, language)]
        )
    heads = ["file", "cases", "first ms", "p50 ms", "p99 ms", f"first of {LINES}", "p50 ms", "p99 ms"]
    print(table(heads, rows))
    machine = provenance()["machine"]
    print(f"\n{machine['cpu']}, {machine['cores']} cores")


def times(read: Callable[[str, str], str], texts: Sequence[str], language: str) -> list[str]:
    """The first text's milliseconds, and the median and 99th percentile of all of them read again."""
    spent = [timed(read, text, language) for text in texts]
    again = sorted(timed(read, text, language) for text in texts)
    p99 = again[min(int(0.99 * len(again)), len(again) - 1)]
    return [f"{spent[0]:.2f}", f"{statistics.median(again):.2f}", f"{p99:.2f}"]


def timed(read: Callable[[str, str], str], text: str, language: str) -> float:
    begun_s = time.perf_counter()
    read(text, language)
    return 1e3 * (time.perf_counter() - begun_s)


if __name__ == "__main__":
    main()
