"""Speed and first audio of a server by utterances in progress, from recorded runs of client_server.py."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measuring.figures import PERCENTILES

CLIENTS, RATE = re.compile(r"(\d+) clients?$"), re.compile(r"([\d.]+) (?:requests )?a second$")
"""Names of closed and of open loops in benchmarks/results."""


Floats = NDArray[np.float64]


class BadCurve(ValueError):
    """A file that has no curve; the message says what is missing."""


@dataclass(frozen=True)
class Run:
    """
    A recorded load, and what a server did.

    Attributes:
        clients: who asked again as soon as they had their answer; 0 of an open loop.
        rate: requests a second of an open loop; 0 of a closed one.
        in_progress: utterances in progress, on average.
        speed: seconds of speech that were made a second.
        asked: seconds of speech that were asked for a second, refused ones at the mean length.
        first_audio_ms: the percentiles of :data:`measuring.figures.PERCENTILES`.
        refused: share of the requests.
    """

    clients: int
    rate: float
    in_progress: float
    speed: float
    asked: float
    first_audio_ms: tuple[float, ...]
    refused: float


@dataclass(frozen=True)
class Curve:
    """
    Speed and first audio by utterances in progress, measured at some numbers of them.

    Attributes:
        in_progress: the measured numbers, rising.
        speed: seconds of speech a second of all of them together.
        first_audio_ms: percentiles of who begins as one of so many, a row for each number.
    """

    in_progress: tuple[float, ...]
    speed: tuple[float, ...]
    first_audio_ms: tuple[tuple[float, ...], ...]

    def speeds(self, counts: Floats) -> Floats:
        """Seconds of speech a second, linear in the logarithm of the number of utterances."""
        return np.interp(np.log(counts), np.log(self.in_progress), self.speed)

    def first_audio(self, counts: Floats) -> Floats:
        """Logarithms of the percentiles in milliseconds, [counts, percentiles], each row rising."""
        measured = np.log(self.first_audio_ms)
        columns = [np.interp(np.log(counts), np.log(self.in_progress), column) for column in measured.T]
        return np.maximum.accumulate(np.stack(columns, axis=1), axis=1) + 1e-9 * np.arange(len(columns))

    def scaled(self, speed: float = 1.0, first_audio: float = 1.0) -> Curve:
        """A machine that is so many times as fast, and as late."""
        later = tuple(tuple(first_audio * value for value in row) for row in self.first_audio_ms)
        return replace(self, speed=tuple(speed * value for value in self.speed), first_audio_ms=later)


def read_runs(path: Path, gpu: str = "", settings: str = "default") -> list[Run]:
    """Runs of a file of benchmarks/results or of client_server.py's results.json.

    Where a file has several versions of the server, the last one that was measured with so many clients
    counts. Loads whose clients listen before they ask again are left out.

    Args:
        gpu: part of the GPU's name; empty: that of the file's first machine.
        settings: of the server, as the file names them.

    Raises:
        BadCurve: the file is neither.
    """
    report = json.loads(path.read_text(encoding="utf-8"))
    if "levels" in report:
        return [_run(level.get("clients") or 0, level.get("rate") or 0.0, level["figures"])
                for level in report["levels"] if not level.get("listen")]  # fmt: skip
    if "runs" not in report or "machines" not in report:
        raise BadCurve(f"{path}: needs levels, as client_server.py writes, or machines and runs")
    gpus = [" ".join(machine["gpus"]) for machine in report["machines"]]
    wanted = gpu or gpus[0].split(",")[0]
    chosen = [run for run in report["runs"] if wanted in gpus[run["machine"]] and run["settings"] == settings]
    return list(_latest(chosen))


def _latest(runs: Sequence[dict[str, Any]]) -> Iterator[Run]:
    versions = {run["load"]: run.get("version") for run in runs if CLIENTS.match(run["load"])}
    for run in runs:
        if (match := CLIENTS.match(run["load"])) and versions[run["load"]] == run.get("version"):
            yield _run(int(match[1]), 0.0, run["figures"])
        elif match := RATE.match(run["load"]):
            yield _run(0, float(match[1]), run["figures"])


def _run(clients: int, rate: float, figures: dict[str, Any]) -> Run:
    latency_s = figures["latency_ms"]["mean"] / 1e3
    refused = sum(figures["errors"].values())
    answered = figures["requests"] - refused
    asking_s = figures["wall_s"] - latency_s  # the run ends when the last one has been answered
    return Run(
        clients,
        rate,
        figures["requests_per_s"] * latency_s,
        figures["audio_s_per_s"],
        figures["requests"] / asking_s * figures["audio_s_per_s"] * figures["wall_s"] / answered,
        tuple(figures["ttfb_ms"][f"p{percentile}"] for percentile in PERCENTILES),
        refused / figures["requests"],
    )


def curve_of(runs: Sequence[Run]) -> Curve:
    """The curve of the closed loops; runs with the same number of clients count as their medians.

    Raises:
        BadCurve: fewer than two numbers of clients, or none alone.
    """
    numbers = sorted({run.clients for run in runs if run.clients})
    if len(numbers) < 2 or numbers[0] != 1:
        found = ", ".join(map(str, numbers)) or "none"
        raise BadCurve(f"closed loops with 1 client and with more are needed; the file has {found}")
    points = [[run for run in runs if run.clients == number] for number in numbers]
    return Curve(
        tuple(median(run.in_progress for run in point) for point in points),
        tuple(median(run.speed for run in point) for point in points),
        tuple(
            tuple(median(run.first_audio_ms[i] for run in point) for i in range(len(PERCENTILES)))
            for point in points
        ),
    )


def steepest(curve: Curve, most: float) -> tuple[float, float] | None:
    """Two neighbouring numbers of utterances, of at most so many, between which p95 grows over threefold."""
    place = PERCENTILES.index(95)
    points = [(k, row[place]) for k, row in zip(curve.in_progress, curve.first_audio_ms, strict=True)]
    for (k, before_ms), (more, after_ms) in itertools.pairwise(points):
        if k <= most and math.log(after_ms / before_ms) > math.log(3):
            return k, more
    return None
