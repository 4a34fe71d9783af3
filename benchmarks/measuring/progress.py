"""A count for whoever waits."""

from __future__ import annotations

import sys
import time


class Progress:
    """A line on a terminal that is kept up to date; in a log, one line at the end."""

    def __init__(self, name: str, total: int | None = None) -> None:
        self._name = name
        self._total = "" if total is None else f" of {total}"
        self._done = 0
        self._errors = 0
        self._start = time.perf_counter()

    def step(self, failed: bool = False) -> None:
        """One more is done."""
        self._done += 1
        self._errors += failed
        if sys.stderr.isatty():
            print(f"\r{self}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """All are done."""
        print(f"\r{self}" if sys.stderr.isatty() else self, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        seconds = time.perf_counter() - self._start
        errors = f", {self._errors} errors" if self._errors else ""
        return f"{self._name}: {self._done}{self._total} done{errors}, {seconds:.1f} s"
