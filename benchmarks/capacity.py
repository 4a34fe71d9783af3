#!/usr/bin/env python3
"""How many GPUs, fronts and megabits listeners need, from the measured curve of one machine.

    python benchmarks/capacity.py --curve benchmarks/results/server_first_come.json --listeners 10000 \\
        --ttfb-p95-ms 150
    python benchmarks/capacity.py --curve benchmarks/results/server_first_come.json \\
        --listeners 100,1000,10000,100000 --ttfb-p95-ms 120,150,200 \\
        --output benchmarks/results/capacity_h100.json

A curve of another machine, or of other texts and voices, takes ten minutes there:

    python benchmarks/client_server.py --mode streaming --concurrency 1,16,64,80 --seconds 60 --requests 20000

It says how many GPUs the demand needs alone, with what comes until a new pod serves, and with spares; then
fronts, the network, what `planned` in the chart should be, and what each assumption does to it. Last come the
open loops of the file, of which the curve knows nothing, beside what the model says of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from measuring.figures import PERCENTILES
from measuring.fleet_plan import LEAST_PODS, Needs, OutOfReach, Plan, otherwise, percent, plan
from measuring.machine import provenance
from measuring.report import table
from measuring.shared_gpu import SharedGpu
from measuring.speed_curve import BadCurve, Curve, Run, curve_of, read_runs, steepest

STEADY = 0.95
"""Share of a GPU's peak up to which a run of half a minute shows what goes on for ever."""
Number = TypeVar("Number", int, float)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        runs = read_runs(options.curve, options.gpu, options.settings)
        curve = curve_of(runs)
        plans = [(needs, plan(curve, needs)) for needs in each_needs(options)]
    except (BadCurve, OutOfReach) as error:
        print(f"capacity: {error}", file=sys.stderr)
        return 1
    checks = [check(curve, run, options.places) for run in runs if run.rate]
    if len(plans) == 1:
        [(needs, found)] = plans
        print(one(needs, found), values(found), assumptions(curve, needs, found), sep="\n\n")
    else:
        print(many(plans))
    print("", *notes(curve, plans), sep="\n")
    print("", against_recorded(checks), sep="\n")
    if options.output:
        options.output.write_text(json.dumps(report(options, curve, plans, checks), indent=1) + "\n", "utf-8")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--curve", type=Path, required=True, help="recorded runs of client_server.py")
    add("--gpu", default="", help="part of the GPU's name, where the file has several (its first)")
    add("--settings", default="default", help="of the server, as the file names them (%(default)s)")
    add(
        "--listeners", type=numbers(int, 1, 10**9), required=True, help="at the busiest time, as N or N,N,..."
    )
    add("--ttfb-p95-ms", type=numbers(float, 1, 60_000), required=True, help="95 of 100 begin within, ms")
    add("--share", type=number(float, 0.001, 1), help="of the time that a listener hears speech (1)")
    add(
        "--refused", type=number(float, 1e-9, 0.5), help="greatest share of requests that are refused (0.001)"
    )
    add("--places", type=number(int, 1, 4096), help="utterances of a server at once (128)")
    add("--growth", type=number(float, 0, 10), help="growth of the demand a minute, as a share (0.02)")
    add("--pod-s", type=number(float, 0, 86_400), help="until a new pod serves, s (300)")
    add("--spare", type=number(float, 0, 10), help="share of GPUs that may be away, at least one is (0.1)")
    add("--front-cpu-ms", type=number(float, 0.001, 1e3), help="of a front for a second of speech (0.65)")
    add("--front-load", type=number(float, 0.01, 1), help="share of its core that a front is kept at (0.6)")
    add("--front-streams", type=number(int, 1, 10**6), help="front.max_streams (256)")
    add("--output", type=Path, help="JSON file for all figures")
    parser.set_defaults(**{name: getattr(Needs(1, 1), name) for name in asdict(Needs(1, 1))})
    parser.set_defaults(listeners=None, ttfb_p95_ms=None)
    return parser.parse_args(arguments)


def number(kind: type[Number], least: float, most: float) -> Callable[[str], Number]:
    """A parser of one number between two limits."""

    def parsed(text: str) -> Number:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value

    return parsed


def numbers(kind: type[Number], least: float, most: float) -> Callable[[str], list[Number]]:
    """A parser of numbers with commas between them."""
    return lambda text: [number(kind, least, most)(part) for part in text.split(",")]


def each_needs(options: argparse.Namespace) -> list[Needs]:
    """One for each number of listeners and each limit."""
    rest = {name: getattr(options, name) for name in asdict(Needs(1, 1))}
    return [
        Needs(**{**rest, "listeners": listeners, "ttfb_p95_ms": limit_ms})
        for listeners, limit_ms in itertools.product(options.listeners, options.ttfb_p95_ms)
    ]


def one(needs: Needs, found: Plan) -> str:
    """A plan as a table of what, how many and why."""
    rows = [
        (
            "demand",
            f"{needs.demand:,.0f} s/s",
            f"{needs.listeners:,} listeners, {percent(needs.share)} of the time",
        ),
        (
            "one GPU",
            f"{found.most:.0f} s/s",
            f"{percent(round(found.most / found.peak, 2))} of its peak; {found.limit.in_progress:.0f} "
            f"utterances in progress, p50 / p95 {_first(found.limit)} ms, "
            f"{percent(found.limit.refused)} refused",
        ),
        ("GPUs for the demand", f"{found.needed:,}", "demand / one GPU"),
        (
            "and its growth",
            f"{found.growing:,}",
            f"{percent(needs.grows)} more within {needs.pod_s:g} s of a new pod",
        ),
        ("and spares", f"{found.gpus:,}", f"{percent(needs.spare)} and at least one may be away"),
        (
            "fronts",
            f"{found.fronts:,}",
            f"one core each, {needs.front_cpu_ms:g} ms of it for a second of speech",
        ),
        ("servers to fronts", f"{found.inside_mbit_s:,.0f} Mbit/s", "float32, 96 kB a second of speech"),
        ("fronts to listeners", f"{found.outside_mbit_s:,.0f} Mbit/s", "pcm, 48 kB a second of speech"),
        (
            "planned",
            f"{found.planned}",
            f"a pod's utterances in progress with room for growth and spares; {found.load:.0f} s/s, "
            f"p50 / p95 {_first(found.usual)} ms",
        ),
    ]
    return table(("", "", "why"), rows)


def values(found: Plan) -> str:
    """The part of the chart's values that follows."""
    servers = f"{{kind: keda, min: {LEAST_PODS}, max: {found.gpus}, planned: {found.planned}}}"
    return f"server:\n  autoscaling: {servers}\nfront:\n  autoscaling: {{max: {found.fronts}}}"


def assumptions(curve: Curve, needs: Needs, found: Plan) -> str:
    """The plan beside what it would be with each assumption another."""
    rows = [("as assumed", *_row(found))]
    for name, other in otherwise(curve, needs):
        rows.append((name, *(_row(other) if other else ("out of reach", "-", "-", "-"))))
    return table(("if", "GPUs for the demand", "GPUs", "planned", "fronts"), rows)


def _row(found: Plan) -> tuple[str, str, str, str]:
    return f"{found.needed:,}", f"{found.gpus:,}", f"{found.planned}", f"{found.fronts:,}"


def _first(state: Any) -> str:
    return " / ".join(f"{value:.0f}" for value in state.first_audio_ms)


def many(plans: Sequence[tuple[Needs, Plan]]) -> str:
    """A table of plans."""
    columns = (
        "listeners", "p95 ms", "a GPU makes, s/s", "of its peak", "GPUs for the demand",
        "with growth and spares", "planned", "fronts", "inside / outside Mbit/s",
    )  # fmt: skip
    rows = [
        (
            f"{needs.listeners:,}",
            f"{needs.ttfb_p95_ms:g}",
            f"{found.most:.0f}",
            percent(round(found.most / found.peak, 2)),
            *(f"{count:,}" for count in (found.needed, found.gpus, found.planned, found.fronts)),
            f"{found.inside_mbit_s:,.0f} / {found.outside_mbit_s:,.0f}",
        )
        for needs, found in plans
    ]
    return table(columns, rows)


def notes(curve: Curve, plans: Sequence[tuple[Needs, Plan]]) -> list[str]:
    """Measurements that are missing before the plan can be believed."""
    busiest = max(2 * found.limit.in_progress for _, found in plans)
    if not (steep := steepest(curve, busiest)):
        return []
    between = " and ".join(f"{count:.0f}" for count in steep)
    return [f"First audio p95 grows over threefold between {between} in progress: measure between them."]


def check(curve: Curve, run: Run, places: int) -> dict[str, Any]:
    """Compare the model with a recorded open loop."""
    gpu = SharedGpu(curve, places)
    state = gpu.state(run.asked)
    measured_ms = [run.first_audio_ms[PERCENTILES.index(percentile)] for percentile in (50, 95)]
    return {
        "rate": run.rate,
        "asked_s_per_s": run.asked,
        "first_audio_ms": state.first_audio_ms,
        "measured_first_audio_ms": measured_ms,
        "in_progress": state.in_progress,
        "measured_in_progress": run.in_progress,
        "steady": run.asked < STEADY * gpu.peak,
    }


def against_recorded(checks: Sequence[dict[str, Any]]) -> str:
    """A table of the model beside recorded open loops."""
    rows = [
        (
            f"{each['rate']:g}",
            f"{each['asked_s_per_s']:.0f}",
            *(
                f"{said:.0f} ({measured:.0f})"
                for said, measured in zip(
                    each["first_audio_ms"], each["measured_first_audio_ms"], strict=True
                )
            ),
            f"{each['in_progress']:.1f} ({each['measured_in_progress']:.1f})",
            "" if each["steady"] else "its peak is near or passed: the run ended before what the model says",
        )
        for each in checks
    ]
    columns = ("requests a second", "asked, s/s", "p50 ms, model (measured)", "p95 ms", "in progress", "")
    return table(columns, rows) if rows else "The file has no open loop to hold the model to."


def report(
    options: argparse.Namespace,
    curve: Curve,
    plans: Sequence[tuple[Needs, Plan]],
    checks: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """All figures."""
    return {
        "benchmark": "capacity",
        **provenance(),
        "curve_of": str(options.curve),
        "curve": asdict(curve),
        "plans": [{"needs": asdict(needs), "plan": asdict(found)} for needs, found in plans],
        "recorded": list(checks),
    }


if __name__ == "__main__":
    sys.exit(main())
