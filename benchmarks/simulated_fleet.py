#!/usr/bin/env python3
"""Simulate a fleet with balancers, lost servers, updates and slow pods; needs no server.

    python benchmarks/simulated_fleet.py --curve benchmarks/results/server_first_come.json \\
        --output benchmarks/results/simulated_fleet_h100.json

GPUs speak as fast as the measured curve says, and first audio is as it was measured with as many utterances
in progress. The first table has ways to choose a server, at the greatest load that keeps the limit of first
audio, and for small servers, which refuse. The second has a server that is lost and all of them updated, at
the load that capacity.py plans; the third a demand that grows, with an autoscaler, by the time a pod takes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from measuring.fleet_plan import Needs, OutOfReach, Plan, percent, plan, usual_load
from measuring.fleet_simulation import BALANCERS, WARM_UP_S, Figures, Fleet, Simulation
from measuring.machine import provenance
from measuring.report import table
from measuring.shared_gpu import SharedGpu
from measuring.speed_curve import BadCurve, Curve, curve_of, read_runs

SMALL_PLACES, SMALL_LOAD = 4, 0.7
"""Places of a small server, and which share of its speed with all of them is asked for."""
HAPPENS_S = 60.0
"""When something happens."""


class Setting(NamedTuple):
    """
    Attributes:
        seconds: that each simulation lasts at least.
        fleet: which each one starts from.
    """

    curve: Curve
    plan: Plan
    needs: Needs
    fleet: Fleet
    seconds: float
    seed: int

    def usual(self, servers: int) -> float:
        """Seconds of speech a second of one of so many, with room for growth and spares."""
        return usual_load(self.plan.most, self.needs, servers)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        curve = curve_of(read_runs(options.curve, options.gpu))
        found = plan(curve, needs := needs_of(options.servers, options.ttfb_p95_ms, curve))
    except (BadCurve, OutOfReach) as error:
        print(f"simulated_fleet: {error}", file=sys.stderr)
        return 1
    fleet = Fleet(options.servers, options.fronts)
    setting = Setting(curve, found, needs, fleet, options.seconds, options.seed)
    tables = {
        "balancers": list(balancers(setting)),
        "events": list(events(setting)),
        "growth": list(growth(setting, options.pods_s)),
    }
    print(*(markdown(rows) for rows in tables.values()), sep="\n\n")
    if options.output:
        report = {"benchmark": "simulated_fleet", **provenance(), "curve": asdict(curve), **tables}
        options.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


def needs_of(servers: int, ttfb_p95_ms: float, curve: Curve) -> Needs:
    """The greatest number of listeners for whom so many servers are planned."""
    needs = Needs(1, ttfb_p95_ms)
    return replace(needs, listeners=int(servers * usual_load(plan(curve, needs).most, needs, servers)))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--curve", type=Path, required=True, help="recorded runs of client_server.py")
    add("--gpu", default="", help="part of the GPU's name, where the file has several (its first)")
    add("--ttfb-p95-ms", type=float, default=150.0, help="95 of 100 begin within, ms (%(default)g)")
    add("--servers", type=_servers, default=10, help="GPUs, two at least (%(default)s)")
    add("--fronts", type=int, default=6, help="that choose servers, each for itself (%(default)s)")
    add("--seconds", type=float, default=240.0, help="simulated at least (%(default)g)")
    add("--pods-s", type=_seconds, default=[60.0, 300.0, 900.0], help="that a pod takes (60,300,900)")
    add("--seed", type=int, default=1, help="(%(default)s)")
    add("--output", type=Path, help="JSON file for all rows")
    return parser.parse_args(arguments)


def _seconds(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _servers(text: str) -> int:
    if int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text} is fewer than 2")
    return int(text)


def balancers(setting: Setting) -> Iterator[dict[str, Any]]:
    """Each balancer, with one try and with three, before large servers and before small ones."""
    small = SMALL_LOAD * SharedGpu(setting.curve, SMALL_PLACES).peak
    for places, load in ((setting.needs.places, setting.plan.most), (SMALL_PLACES, small)):
        for balancer in BALANCERS:
            for tries in (1, 3):
                fleet = replace(setting.fleet, places=places, balancer=balancer, tries=tries)
                figures = steady(setting, fleet, load).run()
                yield {
                    "places": places,
                    "asked of a GPU, s/s": round(load),
                    "balancer": balancer,
                    "tries": tries,
                    "refused": percent(figures.refused_share),
                    "p50 / p95 ms": _first(figures),
                    "most in progress of a server": figures.most_in_progress,
                }


def steady(setting: Setting, fleet: Fleet, load: float, seconds: float = 0.0) -> Simulation:
    """A fleet that is asked for the same all the time, in seconds of speech a second of each server."""
    demand = load * fleet.servers
    seconds = max(seconds, setting.seconds)
    return Simulation(setting.curve, fleet, lambda _: demand, demand, seconds, setting.seed)


def events(setting: Setting) -> Iterator[dict[str, Any]]:
    """A server lost and an update both ways, for the fleet and for one of three, at the usual load."""
    for servers in dict.fromkeys((setting.fleet.servers, 3)):
        fleet = replace(setting.fleet, servers=servers)
        all_s = fleet.pod_s * servers
        for name, lasts_s in (
            ("a server lost", fleet.pod_s),
            ("update, surge", all_s),
            ("update, replace", all_s),
        ):
            simulation = steady(setting, fleet, setting.usual(servers), HAPPENS_S + lasts_s + HAPPENS_S)
            if name == "a server lost":
                simulation.lose(HAPPENS_S)
            else:
                simulation.update(HAPPENS_S, surge=name == "update, surge")
            figures = simulation.run()
            yield {
                "servers": servers,
                "what": name,
                "p50 / p95 ms before": _first(figures, 0, HAPPENS_S),
                "meanwhile": _first(figures, HAPPENS_S, HAPPENS_S + lasts_s),
                "afterwards": _first(figures, HAPPENS_S + lasts_s),
                "fewest servers": min(count for _, count in figures.servers),
                "refused": percent(figures.refused_share),
                "resumed": figures.resumed,
                "cut": figures.cut,
            }


def growth(setting: Setting, pods_s: Sequence[float]) -> Iterator[dict[str, Any]]:
    """A demand that grows as planned until it has grown by half, by the time that a pod takes."""
    rate = setting.needs.growth / 60
    begin = setting.needs.demand
    for planned in (setting.plan.planned, int(setting.plan.limit.in_progress)):
        for pod_s in pods_s:
            fleet = replace(setting.fleet, planned=planned, pod_s=pod_s, most=10 * setting.fleet.servers)
            until_s = WARM_UP_S + 0.5 / rate
            figures = Simulation(
                setting.curve,
                fleet,
                lambda at_s: begin * (1 + rate * max(at_s - WARM_UP_S, 0.0)),
                begin * (1 + rate * until_s),
                until_s,
                setting.seed,
            ).run()
            yield {
                "planned": planned,
                "a pod takes, s": round(pod_s),
                "p50 / p95 ms": _first(figures),
                "refused": percent(figures.refused_share),
                "servers at the end": figures.servers[-1][1],
            }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    return table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


def _first(figures: Figures, begin_s: float = 0.0, end_s: float = float("inf")) -> str:
    return " / ".join(f"{value:.0f}" for value in figures.first_audio_ms(begin_s, end_s))


if __name__ == "__main__":
    sys.exit(main())
