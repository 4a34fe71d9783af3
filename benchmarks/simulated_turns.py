#!/usr/bin/env python3
"""How much a divided H200 would speak and how soon, from how the product plans turns; needs no GPU.

    python benchmarks/simulated_turns.py
    python benchmarks/simulated_turns.py --clients 16,64 --seconds 60
    python benchmarks/simulated_turns.py --clients 16,32 --rate "" --pages 150 --answers some-long
    python benchmarks/simulated_turns.py --clients 64 --rate "" --pages 490 --answers spoken    as an H100 has

The scheduler's own functions decide who is computed next, in simulated time; how long a turn takes is from a
server's turns on an H200, full size (benchmarks/results/README.md). Blocks whose pages were lost are computed
again in parts of four, of which each takes as long as a turn of one row. One thread launches turns, and that
takes as long as in the server; the speech LM and voices are there in time. It says what another plan changes,
not what a machine does.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from cosyvoice_runtime.gpu.partitions.division import FEW
from measuring.report import table
from measuring.turn_simulation import LENGTHS, OF_FEW, OF_MANY, PAGES, WARM_UP_S, Figures, Simulation

COLUMNS = (
    "load", "speech s/s", "first chunk p50 / p95 ms", "silence above 0.1 s", "rows filled", "commonest turns",
    "pages lost",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=_numbers, default=[16, 32, 64, 128], help="at once (16,32,64,128)")
    parser.add_argument("--rate", type=_numbers, default=[5, 10, 20], help="requests a second (5,10,20)")
    parser.add_argument("--pages", type=int, default=PAGES, help="seconds of speech kept (%(default)s)")
    parser.add_argument("--answers", choices=LENGTHS, default="sentences", help="how long (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="simulated (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each load (%(default)s)")
    options = parser.parse_args(arguments)
    loads = [(f"{clients} clients", clients, 0.0) for clients in options.clients]
    loads += [(f"{rate} a second", 0, float(rate)) for rate in options.rate]
    rows = []
    for name, clients, rate in loads:
        division = OF_MANY if clients > FEW else OF_FEW
        runs = [
            Simulation(
                division, options.seconds, clients, rate, seed, options.pages, LENGTHS[options.answers]
            ).run()
            for seed in range(options.seeds)
        ]
        rows.append([name, *_row(runs, options.seconds)])
    print(table(COLUMNS, rows))


def _row(runs: Sequence[Figures], seconds: float) -> list[str]:
    speech = [run.tokens / 25 / (seconds - WARM_UP_S) for run in runs]
    first_ms = sorted(1e3 * each for run in runs for each in run.first_s)
    late, utterances = sum(run.late for run in runs), sum(run.utterances for run in runs)
    filled = sum(run.filled["blocks"] for run in runs) / max(sum(run.filled["room"] for run in runs), 1)
    turns = sum((run.turns for run in runs[1:]), runs[0].turns).most_common(3)
    return [
        f"{statistics.median(speech):.0f}",
        f"{first_ms[len(first_ms) // 2]:.0f} / {first_ms[int(0.95 * len(first_ms))]:.0f}",
        f"{late} of {utterances}",
        f"{filled:.0%}",
        ", ".join(f"{rows} x {blocks}" for (rows, blocks), _ in turns),
        f"{sum(run.lost for run in runs)} times",
    ]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


if __name__ == "__main__":
    main()
