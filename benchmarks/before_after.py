#!/usr/bin/env python3
"""Compare checkouts, or sets of settings, with the first one: each is served in turn, in alternating rounds.

    python benchmarks/before_after.py before:../old after:. --checkpoint checkpoints/CosyVoice2-0.5B
    python benchmarks/before_after.py ten:. six:.:token2wav.ode_steps=6 --clients 1,4 --rates none
    python benchmarks/before_after.py before:../old after:. --client=--max-tokens=125 --limit 580

A side is a name, a checkout and, after another colon, settings with commas between them. Its own scripts make
its engine files and its model repository, its own supervisor serves it, and this checkout's client_server.py
asks it. With three rounds the order is A B A B A B, so a drift of the machine meets both; a server is started
anew each time, because two starts of the same code differ, too. With more than two sides, each is compared
with the first. Shown are medians of the rounds with the lowest and the highest, and the difference in
percent. A difference is beyond noise if each round of one side is above each of the other's and the medians
are further apart than the rounds of either side. That takes three rounds. A refused request has failed: on a
small machine, cosyvoice2.max_inflight_utterances=64 lets all of them in. For the first 11 to 13 s of service
a GPU captures calls for few utterances: until then single first audios take 40 to 130 ms, whatever the side,
and --settle 15 waits. The output directory gets before_after.json and before_after.md after every round; with
--limit no round begins that would not end in time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from client_server import numbers
from measuring.machine import ROOT, commit_of, provenance
from measuring.own_server import OwnServer, environment
from measuring.report import load_name, table

Figures = dict[str, Any]
Row = dict[str, Any]
FEWEST_ROUNDS = 3
"""With fewer, chance alone sets the sides apart too often to say anything."""
ENDLESS = 10**6
"""Requests of a level, which its seconds end."""


@dataclass(frozen=True)
class Figure:
    """A number of a level, and how it is read: None where nothing was answered."""

    name: str
    read: Callable[[Figures], float | None]
    more_is_better: bool = False


FIGURES = (
    Figure("TTFB p50 ms", lambda figures: figures["ttfb_ms"] and figures["ttfb_ms"]["p50"]),
    Figure("TTFB p95 ms", lambda figures: figures["ttfb_ms"] and figures["ttfb_ms"]["p95"]),
    Figure("audio s/s", lambda figures: figures["audio_s_per_s"], more_is_better=True),
    Figure("continuous", lambda figures: figures["continuous_share"], more_is_better=True),
    Figure("failed", lambda figures: sum(figures["errors"].values()) / max(figures["requests"], 1)),
)


@dataclass(frozen=True)
class Side:
    """A checkout that is served with settings of its own."""

    name: str
    checkout: Path
    settings: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Side:
        """``name:checkout:KEY=VALUE,KEY=VALUE``; the name becomes a folder's, and a value may have commas."""
        name, _, rest = text.partition(":")
        checkout, _, settings = rest.partition(":")
        if not (re.fullmatch(r"[\w.-]+", name) and checkout):
            raise ValueError(text)
        return cls(name, Path(checkout).absolute(), tuple(filter(None, re.split(r",(?=[\w.]+=)", settings))))

    def prepare(self, checkpoint: Path, folder: Path) -> Path:
        """Make engine files and the model repository; returns the latter."""
        folder.mkdir(parents=True)
        given = [
            f"checkpoint_dir={checkpoint}",
            f"cosyvoice2.voices_dir={folder / 'voices'}",
            f"tensorrt_llm.engine_dir={folder / 'speech_lm'}",
            f"token2wav.backend_dir={folder / 'networks'}",
            *self.settings,
        ]
        repository = folder / "model_repo"
        for script in (
            ["scripts/build_engines.py"],
            ["scripts/render_model_repo.py", f"--output={repository}"],
        ):
            command = [sys.executable, *script, *given]
            subprocess.run(command, check=True, cwd=self.checkout, env=environment(self.checkout))
        return repository


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="before-after-") as scratch:
        complete = measure(options, Path(scratch))
    print((options.output_dir / "before_after.md").read_text(encoding="utf-8"))
    return 0 if complete else 1


def measure(options: argparse.Namespace, scratch: Path) -> bool:
    """Run the rounds, writing what is known after each; whether all of them found time."""
    began, longest_s = time.monotonic(), 0.0
    rounds: list[dict[str, Any]] = []
    folders = {side: scratch / side.name for side in options.sides}
    checkpoint = options.checkpoint.absolute()
    repositories = {side: side.prepare(checkpoint, folder) for side, folder in folders.items()}
    for number, side in itertools.product(range(options.rounds), options.sides):
        started = time.monotonic()
        if rounds and options.limit and started - began + longest_s > options.limit:
            print(f"no time for round {number + 1} of {side.name}", file=sys.stderr)
            return False
        with OwnServer(repositories[side], folders[side], side.checkout) as server:
            time.sleep(options.settle)
            levels = ask(server.url, number, options)
        rounds.append({"side": side.name, "start_s": round(server.start_s, 2), "levels": levels})
        longest_s = max(longest_s, time.monotonic() - started)
        write(options, rounds)
    return True


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sides", type=Side.read, nargs="+", metavar="NAME:CHECKOUT[:KEY=VALUE,...]")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "demo_voice", help="default: demo_voice/")
    parser.add_argument("--clients", type=levels_of(int), default=[1, 16, 64], metavar="N,N")
    parser.add_argument("--rates", type=levels_of(float), default=[10.0, 20.0], metavar="R,R")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help="of each side (%(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a level (%(default)s)")
    parser.add_argument("--settle", type=float, default=0.0, help="seconds between a start and its levels")
    parser.add_argument("--limit", type=float, help="seconds for everything")
    parser.add_argument("--client", action="append", default=[], metavar="OPTION", help="of client_server.py")
    parser.add_argument("--output-dir", type=Path, default=Path("results/before_after"))
    options = parser.parse_args(arguments)
    names = {side.name for side in options.sides}
    if len(names) < max(len(options.sides), 2):
        parser.error("at least two sides are compared, each with a name of its own")
    return options


def levels_of(kind: type) -> Callable[[str], list[Any]]:
    """Reads a list such as 1,4, or none."""
    read = numbers(kind)

    def levels(text: str) -> list[Any]:
        return [] if text == "none" else read(text)

    return levels


def ask(url: str, number: int, options: argparse.Namespace) -> list[Figures]:
    """One round: all levels, as client_server.py measures them; without its single samples."""
    loads = {"--concurrency": options.clients, "--rate": options.rates}
    with tempfile.TemporaryDirectory(prefix="round-") as folder:
        command = [sys.executable, f"{ROOT}/benchmarks/client_server.py", f"--url={url}", "--no-plot"]
        command += [f"{name}={','.join(map(str, values))}" for name, values in loads.items() if values]
        command += [f"--warmup={max(options.clients, default=4)}", f"--order-seed={number}"]
        command += [f"--requests={ENDLESS}", f"--seconds={options.seconds}", f"--output-dir={folder}"]
        subprocess.run(
            [*command, *options.client], check=True, stdout=subprocess.DEVNULL, env=environment(ROOT)
        )
        report = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))
    return [{name: level[name] for name in level if name != "samples"} for level in report["levels"]]


def write(options: argparse.Namespace, rounds: Sequence[dict[str, Any]]) -> None:
    """Write what has been measured so far."""
    report = {
        "benchmark": "before_after",
        **provenance(),
        "checkpoint": options.checkpoint.name,
        "sides": [
            {"name": side.name, "commit": commit_of(side.checkout), "settings": side.settings}
            for side in options.sides
        ],
        "rows": rows([side.name for side in options.sides], rounds),
        "rounds": rounds,
    }
    text = json.dumps(report, indent=1)
    (options.output_dir / "before_after.json").write_text(text + "\n", encoding="utf-8")
    (options.output_dir / "before_after.md").write_text(markdown(report), encoding="utf-8")


def rows(sides: Sequence[str], rounds: Sequence[dict[str, Any]]) -> list[Row]:
    """A comparison of each further side with the first, in each figure of each level that both have."""
    found: dict[tuple[str, Figure], dict[str, list[float]]] = {}
    for one in rounds:
        for level in one["levels"]:
            for figure in FIGURES:
                values = found.setdefault((load_name(level), figure), {side: [] for side in sides})
                if (value := figure.read(level["figures"])) is not None:
                    values[one["side"]].append(round(value, 3))
    first, *others = sides
    return [
        {"load": load, "figure": figure.name, "side": side, **comparison}
        for (load, figure), values in found.items()
        for side in others
        if values[first] and values[side]
        for comparison in [compared(values[first], values[side], figure.more_is_better)]
    ]


def compared(before: Sequence[float], after: Sequence[float], more_is_better: bool) -> Row:
    """Figures of all rounds, the difference of their medians, and what it means."""
    difference = median(after) - median(before)
    spread = max(max(side) - min(side) for side in (before, after))
    apart = min(after) > max(before) or max(after) < min(before)
    if min(len(before), len(after)) < FEWEST_ROUNDS:
        verdict = "too few rounds"
    elif not (apart and abs(difference) > spread):
        verdict = "noise"
    else:
        verdict = "better" if (difference > 0) == more_is_better else "worse"
    told = f"{100 * difference / median(before):+.1f} %" if median(before) else "-"
    return {"before": list(before), "after": list(after), "difference": told, "verdict": verdict}


def markdown(report: dict[str, Any]) -> str:
    """The report for reading."""
    sides, machine = report["sides"], report["machine"]
    hardware = ", ".join([machine["cpu"], f"{machine['cores']} cores", *machine["gpus"]])
    told = [f"{side['name']}: commit {side['commit']}, {' '.join(side['settings'])}" for side in sides]
    columns = ("load", "figure", sides[0]["name"], "compared with", "", "difference", "verdict")
    lines = [
        [
            row["load"],
            row["figure"],
            _shown(row["before"]),
            row["side"],
            _shown(row["after"]),
            row["difference"],
            row["verdict"],
        ]
        for row in report["rows"]
    ]
    heads = [f"# Before and after: {report['checkpoint']}", f"{report['time']}, {hardware}", *told]
    ends = "Medians of the rounds, and in brackets the lowest and the highest."
    return "\n\n".join([*heads, f"`{report['command']}`", table(columns, lines), ends]) + "\n"


def _shown(values: Sequence[float]) -> str:
    return f"{median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


if __name__ == "__main__":
    sys.exit(main())
