#!/usr/bin/env python3
"""Tell what listeners hear while parts of a fleet are full, restarted, killed and frozen.

    python benchmarks/fleet.py --output benchmarks/results/fleet_drills.json
    python benchmarks/fleet.py --soak-s 1200 --kill-every-s 60 --output benchmarks/results/fleet_soak.json

Three real servers with a made checkpoint, fronts, Envoy with deploy/envoy.yaml, SeaweedFS and Redis are
started on free ports of this machine. requirements/fleet.txt installs them, and requirements/clients.txt the
plugins of LiveKit and Pipecat, whose rows are left out without them. Drills are done in both ways: "Envoy"
is a front that knows Envoy's address alone, "round robin" one that knows those of all servers.

A fault is whatever must not be: an error, a cut stream, a sample that is not that of the same utterance uncut
but for the rounding of a batch, a request without an end. Silences are those of listeners who play from the
first audio on, over a tenth of a second. The exit status is 1 where there are faults.

With --soak-s clients of every kind ask for so long, while part after part is killed, stopped or frozen.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from drills import bucket, crowds, deaths, envoy, formats, limits, names, pieces, redis, stores
from drills.fleet import Fleet
from drills.front import Front
from drills.outcome import Outcome
from drills.rolling import rolling_restart
from drills.soak import Soak, settings
from making import make_checkpoint
from measuring.machine import provenance
from measuring.report import table

COLUMNS = (
    "drill", "way", "requests", "faults", "resumed", "told to come back", "silences",
    "longest gap s", "speech s", "took s",
)  # fmt: skip
ENVOY, ROUND_ROBIN, BOTH = "Envoy", "round robin", "both"
EACH = (ENVOY, ROUND_ROBIN)


class Stage(NamedTuple):
    """Everything that a drill needs.

    Attributes:
        way: in which the fronts reach the servers.
        fronts: two.
        with_voices: two that keep voices in the bucket.
        alone: a front before one server.
        folder: for files.
    """

    fleet: Fleet
    way: str
    fronts: list[Front]
    with_voices: list[Front]
    alone: Front
    folder: Path
    options: argparse.Namespace

    @property
    def name(self) -> str:
        """The way, as a part of names."""
        return self.way.replace(" ", "-").lower()


class Drill(NamedTuple):
    """
    Attributes:
        ways: in each of which it is done.
        modules: that it needs beside the product's own.
    """

    name: str
    ways: tuple[str, ...]
    do: Callable[[Stage], Outcome]
    modules: tuple[str, ...] = ()


def death(name: str, strike: Callable[[Fleet], None], ways: tuple[str, ...] = EACH) -> Drill:
    """A drill in which something is done to the fleet while six people listen."""
    return Drill(
        name, ways, lambda on: deaths.while_six_listen(on.fleet, on.fronts, lambda: strike(on.fleet))
    )


def text(name: str) -> Drill:
    """A drill in which texts come in pieces."""
    return Drill(
        f"text in pieces by {name}",
        EACH,
        lambda on: pieces.WAYS[name](on.fronts, on.options.utterances, on.alone),
        pieces.PACKAGES.get(name, ()),
    )


DRILLS = [
    Drill("12 at once", EACH, lambda on: crowds.as_many_as_places(on.fleet, on.fronts, on.options.rounds)),
    Drill("40 at once", (BOTH,), lambda on: crowds.more_than_places(on.fleet, on.fronts)),
    Drill("all servers restarted", (BOTH,), lambda on: rolling_restart(on.fleet, on.fronts, on.alone)),
    death("a server killed", deaths.kill),
    death("two servers killed at once", deaths.kill_two),
    death("a server killed, and the one that goes on", deaths.kill_one_after_the_other),
    Drill("a server frozen", EACH, lambda on: deaths.frozen(on.fleet, on.fronts)),
    death("a gateway killed", deaths.kill_part("gateway grpc")),
    death("a gateway frozen", deaths.freeze_part("gateway grpc")),
    death("the networks' process killed", deaths.kill_part("token2wav")),
    death("an entry model killed", deaths.kill_part("cosyvoice2")),
    death("a tritonserver killed", deaths.kill_part("tritonserver")),
    death("a supervisor killed", deaths.kill_part("supervisor")),
    death("Envoy killed, back after 1 s", deaths.restart_balancer, (ENVOY,)),
    Drill("a tritonserver frozen, its gateway not", EACH, lambda on: deaths.beside_hung(on.fleet, on.fronts)),
    Drill(
        "mp3, opus, times of words: two servers killed",
        (ROUND_ROBIN,),
        lambda on: formats.while_two_servers_die(on.fleet, on.fronts),
    ),
    Drill("the bucket killed", EACH, lambda on: stores.bucket_away(on.fleet, on.with_voices, on.name)),
    Drill("Redis killed, and frozen", (ENVOY,), lambda on: limits.redis_away(on.fleet, on.folder)),
    Drill("a front killed", EACH, lambda on: stores.front_killed(on.fleet, on.fronts)),
    Drill(
        "a voice comes and goes",
        EACH,
        lambda on: names.come_and_go(on.fleet, on.with_voices, f"brief-{on.name}"),
    ),
    Drill(
        "20 want one name",
        EACH,
        lambda on: names.one_of_twenty(on.fleet, on.with_voices, f"wanted-{on.name}"),
    ),
    Drill("3 requests a minute", (ENVOY,), lambda on: limits.three_a_minute(on.fleet, on.folder)),
    Drill("2 streams", (ENVOY,), lambda on: limits.two_streams(on.fleet, on.folder)),
    *map(text, pieces.WAYS),
]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    options.provenance = provenance()  # The checkout may change meanwhile.
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # The networks are small, and processes run side by side.
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        checkpoint = make_checkpoint(Path(folder) / "tiny", "tiny", seed=0)
        fleet = Fleet(Path(folder) / "fleet", checkpoint)
        try:
            fleet.start()
            report = soak(fleet, options) if options.soak_s else drills(fleet, Path(folder), options)
        finally:
            fleet.close()
    write(report, options)
    return 1 if report["faults"] or report.get("grown") else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", nargs="+", default=[""], help="drills whose names contain one of these")
    add("--rounds", type=int, default=10, help="of as many at once as there are places (%(default)s)")
    add("--utterances", type=int, default=100, help="texts in pieces of each kind (%(default)s)")
    add("--soak-s", type=float, default=0.0, help="seconds of clients of every kind, in place of drills")
    add("--kill-every-s", type=float, default=60.0, help="between two blows of it (%(default)g)")
    add("--clients", type=int, default=6, help="of it, at a time (%(default)s)")
    add("--seed", type=int, default=0, help="of it (%(default)s)")
    add("--output", type=Path, help="JSON file for everything")
    return parser.parse_args(arguments)


def drills(fleet: Fleet, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Do all drills, and print them as one table."""
    rows = []
    chosen = [
        drill for drill in DRILLS if any(each in drill.name for each in options.only) and has(drill.modules)
    ]
    with stages(fleet, folder, options) as standing:
        for drill, way in [(each, way) for each in chosen for way in each.ways]:
            fleet.heal()
            rows.append({"drill": drill.name, "way": way, **asdict(outcome_of(drill, standing[way]))})
            write({"rows": rows}, options)
            print(*shown(rows[-1]), *rows[-1]["faults"], sep=" | ", file=sys.stderr, flush=True)
    print(", ".join(f"{name} {number}" for name, number in versions().items()))
    print(table(COLUMNS, [shown(row) for row in rows]))
    return {"rows": rows, "faults": sum(len(row["faults"]) for row in rows)}


def outcome_of(drill: Drill, stage: Stage) -> Outcome:
    """The outcome of a drill; that it does not come to its end is a fault."""
    try:
        return drill.do(stage)
    except (AssertionError, OSError) as error:
        return Outcome(faults=[f"{type(error).__name__}: {error}"])


def write(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Write a report, to the file that was asked for."""
    if options.output:
        written = {"benchmark": "fleet", **options.provenance, "versions": versions(), **report}
        options.output.write_text(json.dumps(written, indent=1) + "\n", "utf-8")


def has(modules: Sequence[str]) -> bool:
    """Whether all of them are installed."""
    try:
        return all(find_spec(module) for module in modules)
    except ModuleNotFoundError:
        return False


@contextmanager
def stages(fleet: Fleet, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Stage]]:
    """A stage for each way, with fronts that run."""
    direct, balanced = ",".join(fleet.addresses), fleet.balancer.grpc_url
    voices = fleet.voices
    with (
        fleet.fronts(2, balanced) as behind_envoy,
        fleet.fronts(2, direct) as round_robin,
        fleet.fronts(2, balanced, **voices) as voices_behind_envoy,
        fleet.fronts(2, direct, **voices) as voices_round_robin,
        fleet.fronts(1, fleet.addresses[-1]) as [alone],
    ):
        fronts = {
            ENVOY: (behind_envoy, voices_behind_envoy),
            ROUND_ROBIN: (round_robin, voices_round_robin),
            BOTH: (
                [behind_envoy[0], round_robin[0]],
                [voices_behind_envoy[0], voices_round_robin[0]],
            ),
        }
        yield {way: Stage(fleet, way, *two, alone, folder, options) for way, two in fronts.items()}


def shown(row: dict[str, Any]) -> list[str]:
    """The cells of a drill."""
    silences = f"{row['silences']} ({row['silence_s']:.1f} s)" if row["silences"] else "0"
    took = ", ".join(f"{what}: {seconds:.1f}" for what, seconds in row["took_s"].items())
    counts = [str(row[name]) for name in ("requests", "resumed", "refused")]
    requests, resumed, refused = counts
    return [
        row["drill"], row["way"], requests, str(len(row["faults"])), resumed, refused, silences,
        f"{row['longest_gap_s']:.1f}", f"{row['audio_s']:.0f}", took,
    ]  # fmt: skip


def soak(fleet: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Have clients of every kind ask for a long time, and print what became of their requests."""
    given = settings(fleet)
    with (
        fleet.fronts(2, fleet.balancer.grpc_url, **given) as behind_envoy,
        fleet.fronts(2, ",".join(fleet.addresses), **given) as round_robin,
    ):
        soaking = Soak(fleet, [*behind_envoy, *round_robin], options.seed)
        soaked = soaking.run(options.soak_s, options.kill_every_s, options.clients).shown()
    counted = {**soaked["endings"], **soaked["blows"], "resumed": soaked["resumed"]}
    print(table(("what", "times"), [[name, str(count)] for name, count in counted.items()]))
    for fault in (*soaked["faults"], *soaked["grown"]):
        print(fault, file=sys.stderr)
    return soaked


def versions() -> dict[str, str]:
    """Of what stands around the product."""
    packages = {"Envoy": envoy.PACKAGE, "SeaweedFS": bucket.PACKAGE, "Redis": redis.PACKAGE, "gRPC": "grpcio"}
    found = {name: version(package) for name, package in packages.items()}
    return {**found, "Python": sys.version.split()[0]}


if __name__ == "__main__":
    sys.exit(main())
