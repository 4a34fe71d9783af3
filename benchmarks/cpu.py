#!/usr/bin/env python3
"""Measure servers on this machine's CPU: start, memory by process, first audio, and what many clients get.

    python benchmarks/cpu.py
    python benchmarks/cpu.py --variant own:process=own --variant shared:process=shared --rounds 5
    python benchmarks/cpu.py --checkpoint checkpoints/CosyVoice2-0.5B --clients 1,4 --requests 4 --demos 0

A variant is a name and settings, with commas between them. Every variant has a server of its own. All of
them run side by side and are asked in turn, one after another at each level of each round, so that whatever
else the machine does meets them all; the figures are medians over the rounds. Spoken are held-out sentences
of the demo voice. Before, each variant's `./run.sh demo` is timed --demos times, with its settings as
variables, while no other server is there. The output directory gets cpu.json and cpu.md.

The servers have places for 64 utterances, so that figures of many clients are not those of the admission.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import client_server
from cosyvoice_runtime.engine.measured_threads import with_measured_threads
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import render, write
from measuring.machine import ROOT, provenance
from measuring.own_server import UP, OwnServer
from measuring.report import load_name, table
from measuring.server_processes import cpu_seconds, descendants, memory_by_process
from measuring.workload import Utterance

if TYPE_CHECKING:
    from typing import Self

DEMO_VOICE = ROOT / "demo_voice"
Level = dict[str, Any]
PLACES = ("cosyvoice2.max_inflight_utterances=64",)
SETTLE_S = 2.0
"""After the last answer: what many made the server take goes back a second later."""
LEAST_WORDS = 5
FIGURES: dict[str, Callable[[dict[str, Any]], float | None]] = {
    "TTFB p50 ms": lambda figures: figures["ttfb_ms"]["p50"],
    "TTFB p95 ms": lambda figures: figures["ttfb_ms"]["p95"],
    "RTF": lambda figures: figures["rtf"],
    "audio s/s": lambda figures: figures["audio_s_per_s"],
    "continuous %": lambda figures: 100 * figures["continuous_share"],
    "CPU s for a second of audio": lambda figures: figures["cpu_s"] / figures["audio_s"],
}


@dataclass(frozen=True)
class Variant:
    """Settings to compare."""

    name: str
    settings: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Variant:
        """``name:KEY=VALUE,KEY=VALUE``; the name becomes a folder's, and a value may have commas."""
        name, _, settings = text.partition(":")
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(text)
        return cls(name, tuple(filter(None, re.split(r",(?=[\w.]+=)", settings))))

    @property
    def environment(self) -> dict[str, str]:
        """The settings as variables."""
        pairs = (setting.split("=", 1) for setting in self.settings)
        return {f"COSYVOICE_{key.upper().replace('.', '__')}": value for key, value in pairs}


class CpuServer(OwnServer):
    """A variant's server.

    Attributes:
        start_cpu_s: what all its processes have computed until all models answer.
    """

    def __init__(self, variant: Variant, checkpoint: Path, folder: Path) -> None:
        repository = folder / "model_repo"
        given = [
            f"checkpoint_dir={checkpoint}",
            f"cosyvoice2.voices_dir={folder / 'voices'}",
            f"tensorrt_llm.engine_dir={folder / 'speech_lm'}",
            f"token2wav.backend_dir={folder / 'networks'}",
            *variant.settings,
        ]
        subprocess.run([sys.executable, ROOT / "scripts" / "build_engines.py", *given], check=True)
        settings = with_measured_threads(Settings.read([*PLACES, *given]), Machine.here())
        write(render(ROOT / "model_repo", settings), repository)
        super().__init__(repository, folder)

    def __enter__(self) -> Self:
        super().__enter__()
        self.start_cpu_s = self.cpu_seconds()
        return self

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""
        return sum(map(cpu_seconds, descendants(self.process.pid)))

    def memory(self) -> dict[str, dict[str, float]]:
        """MiB of each process by its name, once it is quiet."""
        time.sleep(SETTLE_S)
        return memory_by_process(self.process.pid)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    variants = options.variant or [Variant("default")]
    demos = {one.name: time_demos(one, options.demos) for one in variants}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cpu-")))
        servers = {}
        for one in variants:
            (folder / one.name).mkdir()
            server = CpuServer(one, options.checkpoint.absolute(), folder / one.name)
            servers[one.name] = stack.enter_context(server)
        levels: dict[str, list[Level]] = {name: [] for name in servers}
        try:
            asyncio.run(measure(servers, options, levels))
        except KeyboardInterrupt:
            print("stopped: these are the figures so far", file=sys.stderr)
        results = [
            {
                "variant": one.name,
                "settings": one.settings,
                "demo_start_to_first_audio_s": demos[one.name],
                "start_s": round(servers[one.name].start_s, 2),
                "start_cpu_s": round(servers[one.name].start_cpu_s, 2),
                "memory_mib": servers[one.name].memory(),
                "levels": levels[one.name],
            }
            for one in variants
        ]
    report = {"benchmark": "cpu", **provenance(), "checkpoint": options.checkpoint.name, "variants": results}
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / "cpu.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    (options.output_dir / "cpu.md").write_text(markdown(report), encoding="utf-8")
    print(markdown(report))
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=DEMO_VOICE, help="default: demo_voice/")
    parser.add_argument("--variant", type=Variant.read, action="append", metavar="NAME:KEY=VALUE,...")
    parser.add_argument("--clients", type=client_server.numbers(int), default=[1, 4, 8], metavar="N,N")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--requests", type=int, default=16, help="of a level in a round (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="most of a level (%(default)s)")
    parser.add_argument("--demos", type=int, default=1, help="runs of ./run.sh demo (%(default)s)")
    parser.add_argument("--output-dir", type=Path, default=Path("results/cpu"))
    return parser.parse_args(arguments)


def time_demos(variant: Variant, runs: int) -> list[float]:
    """Seconds from the command to the first audio of each run, with packages and engines present."""
    return [round(time_demo({**os.environ, **variant.environment}), 2) for _ in range(runs)]


def time_demo(environment: Mapping[str, str]) -> float:
    """One run. The server answers, then the reference is read and sent, then the first audio comes."""
    started = time.monotonic()
    up_s = first_ms = None
    with subprocess.Popen(
        [str(ROOT / "run.sh"), "demo"],
        cwd=ROOT,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if UP in line:
                up_s = time.monotonic() - started
            if found := re.match(r"new voice: first audio after (\d+) ms", line):
                first_ms = float(found[1])
    if process.returncode or up_s is None or first_ms is None:
        raise RuntimeError("./run.sh demo failed")
    return up_s + first_ms / 1e3


async def measure(
    servers: Mapping[str, CpuServer], options: argparse.Namespace, found: dict[str, list[Level]]
) -> None:
    """Add the figures of each level of each round, by variant."""
    texts = held_out()
    for server in servers.values():
        await ask(server.url, texts, max(options.clients), options)  # fills caches
    for number in range(options.rounds):
        for clients in options.clients:
            for name, server in _turned(servers, number):
                before_s = server.cpu_seconds()
                [level] = await ask(server.url, texts, clients, options)
                level["figures"]["cpu_s"] = server.cpu_seconds() - before_s
                found[name].append({"clients": clients, "round": number, **level["figures"]})


def _turned(servers: Mapping[str, CpuServer], number: int) -> list[tuple[str, CpuServer]]:
    """Every second round begins with the last."""
    return list(servers.items())[:: -1 if number % 2 else 1]


async def ask(url: str, texts: list[Utterance], clients: int, options: argparse.Namespace) -> list[Level]:
    """One level, as ``client_server.py`` measures it."""
    limits = [f"--requests={options.requests}", f"--seconds={options.seconds}", "--warmup=0"]
    load = client_server.parse([f"--url={url}", f"--concurrency={clients}", "--seed=1", "--no-plot", *limits])
    levels: list[Level] = []
    requests = {utterance.name: client_server.request(load, utterance) for utterance in texts}
    await client_server.benchmark(load, texts, requests, levels)
    return levels


def held_out() -> list[Utterance]:
    """Sentences that the demo voice was not trained on."""
    texts = json.loads((DEMO_VOICE / "held_out.json").read_text(encoding="utf-8"))
    long = [text for text in texts if len(text.split()) >= LEAST_WORDS]
    return [Utterance(f"held out {number}", text) for number, text in enumerate(long)]


def markdown(report: Mapping[str, Any]) -> str:
    """The report for reading."""
    machine, variants = report["machine"], report["variants"]
    parts = [
        f"# On a CPU: {report['checkpoint']}\n\n{report['time']}, commit {report['commit']}, "
        f"{machine['cpu']}, {machine['cores']} cores\n\n`{report['command']}`",
        table(("", *(one["variant"] for one in variants)), [*_once(variants), *_by_level(variants)]),
        "Medians of the rounds. Memory is PSS, two seconds after the last round: what several processes map "
        "is shared among them. In brackets, what each held at most, not all of them at once.",
        table(("MiB, PSS (most)", *(one["variant"] for one in variants)), _memory_rows(variants)),
    ]
    return "\n\n".join(parts) + "\n"


def _once(variants: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Rows of what does not depend on the load."""

    def demo(one: Mapping[str, Any]) -> str:
        times = one["demo_start_to_first_audio_s"]
        return f"{median(times):.1f}" if times else "-"

    return [
        ["./run.sh demo: start to first audio, s", *(demo(one) for one in variants)],
        ["server: start, s", *(f"{one['start_s']:.1f}" for one in variants)],
        ["server: CPU time of the start, s", *(f"{one['start_cpu_s']:.1f}" for one in variants)],
        ["memory of all processes, MiB", *(f"{_total(one, 'pss'):.0f}" for one in variants)],
        ["the same, each at its most, MiB", *(f"{_total(one, 'most'):.0f}" for one in variants)],
    ]


def _by_level(variants: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    clients = list(dict.fromkeys(level["clients"] for level in variants[0]["levels"]))
    return [
        [f"{load_name({'clients': count})}: {name}", *(_median(one, count, read) for one in variants)]
        for count in clients
        for name, read in FIGURES.items()
    ]


def _median(one: Mapping[str, Any], clients: int, read: Callable[[dict[str, Any]], float | None]) -> str:
    values = [read(level) for level in one["levels"] if level["clients"] == clients and level["ttfb_ms"]]
    numbers = [value for value in values if value is not None]
    return f"{median(numbers):.3g}" if numbers else "-"


def _memory_rows(variants: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    names = dict.fromkeys(name for one in variants for name in one["memory_mib"])
    rows = [[name, *(_held(one["memory_mib"].get(name)) for one in variants)] for name in names]
    totals = ({kind: _total(one, kind) for kind in ("pss", "most")} for one in variants)
    return [*rows, ["all", *map(_held, totals)]]


def _held(memory: Mapping[str, float] | None) -> str:
    return "-" if memory is None else f"{memory['pss']:.0f} ({memory['most']:.0f})"


def _total(one: Mapping[str, Any], kind: str) -> float:
    return sum(memory[kind] for memory in one["memory_mib"].values())


if __name__ == "__main__":
    sys.exit(main())
