#!/usr/bin/env python3
"""Ask a running server for more than it can do, and see who is served, who is refused, and how soon.

    python benchmarks/overload.py --output-dir results/overload
    python benchmarks/overload.py --clients 256 --factors "" --seconds 180

First the capacity is measured: requests a second that are spoken for a few users who ask again and again.
Then come closed loops of --clients users, each with a name of its own, who come one after another during the
first quarter of the level and come back when they were told to, and open loops of --factors times the
capacity, whose requests have no name and are not repeated. The output directory gets overload.json and
overload.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cosyvoice_client import AsyncSpeechClient, ClientError, SpeechRequest
from measuring.figures import spread
from measuring.load import LagMeter, Sample, closed_loop, due_times, measure, open_loop
from measuring.machine import provenance
from measuring.overload import Level, figures, verdicts
from measuring.progress import Progress
from measuring.report import table
from measuring.workload import Utterance, add_instruction, endless

TEXTS = (
    "The train to the coast leaves at a quarter past nine.",
    "Please bring the blue folder to the meeting.",
    "It rained for most of the afternoon.",
    "She put the letters back into the drawer.",
    "Turn left at the second light and park behind the house.",
    "Nobody had expected so many guests.",
)
SHORT_TEXTS = ("Yes.", "Thank you.", "Not yet.", "Good night.", "Come in.", "Of course.")
MEASURING_USERS = 8
UNLIMITED = 1_000_000
ARRIVE_SHARE = 0.25
"""Share of a level over which the users of a closed loop come: hundreds at once would measure this client."""
COLUMNS = (
    "load",
    "asked",
    "admitted",
    "refused",
    "failed",
    "TTFB p50 / p95 / p99 ms",
    "refusal p50 / p95 / max ms",
    "continuous",
    "served a user",
    "wait p50 / p95 / max s",
    "audio s/s",
    "client lag p99 ms",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    try:
        levels = asyncio.run(run(options))
    except ClientError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    write(options, levels)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", help="gRPC (%(default)s)")
    parser.add_argument("--output-dir", type=Path, default=Path("results"))
    parser.add_argument("--clients", type=numbers(int), default=[4, 16, 64, 256], metavar="N,N")
    parser.add_argument("--factors", type=numbers(float), default=[0.5, 1.0, 2.0, 4.0], metavar="F,F")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each level (%(default)s)")
    parser.add_argument("--capacity", type=float, help="requests a second, instead of measuring it")
    parser.add_argument("--timeout", type=float, default=60.0, help="longest silence of the server")
    parser.add_argument("--seed", type=int, default=0, help="of texts and arrivals (%(default)s)")
    parser.add_argument(
        "--short", action="store_true", help="texts of a second: a crowd has its turns in less time"
    )
    add_instruction(parser)
    return parser.parse_args(arguments)


def numbers(kind: type) -> Callable[[str], list[Any]]:
    """Reads a list such as 1,2,4, or nothing."""

    def read(text: str) -> list[Any]:
        return [kind(value) for value in text.split(",") if value]

    read.__name__ = f"list of {kind.__name__}"
    return read


async def run(options: argparse.Namespace) -> list[Level]:
    """The figures of every level."""
    spoken = SHORT_TEXTS if options.short else TEXTS
    texts = [Utterance(text, options.instruction + text) for text in spoken]
    utterances = endless(texts, options.seed)
    async with Users(options) as users:
        capacity = options.capacity
        levels = []
        if capacity is None:
            levels.append(await closed(options, users, utterances, MEASURING_USERS))
            capacity = levels[0]["requests_per_s"]
            print(f"capacity: {capacity:.2f} requests a second", flush=True)
        levels += [await closed(options, users, utterances, clients) for clients in options.clients]
        levels += [await opened(options, users, utterances, factor, capacity) for factor in options.factors]
    return levels


class Users:
    """Clients by their number; 0 to n have names, the one of an open loop has none."""

    NAMELESS = -1

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._clients: dict[int, AsyncSpeechClient] = {}
        self._open = contextlib.AsyncExitStack()
        self._seeds = itertools.count()

    async def __aenter__(self) -> Users:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def connect(self, numbers: Sequence[int]) -> None:
        """Open their connections, so that no level waits for them."""
        for number in set(numbers) - set(self._clients):
            name = None if number == self.NAMELESS else f"user {number}"
            client = AsyncSpeechClient(self._options.url, timeout_s=self._options.timeout, name=name)
            self._clients[number] = await self._open.enter_async_context(client)
        await asyncio.gather(*(self._clients[number].server() for number in numbers))

    async def speak(self, utterance: Utterance, due_s: float, sample: Sample) -> Sample:
        """Ask for an utterance and measure the answer."""
        request = SpeechRequest(utterance.text, seed=next(self._seeds))
        async with contextlib.aclosing(self._clients[sample.user].speak(request)) as stream:
            return await measure(stream, due_s, sample)

    async def speak_nameless(self, utterance: Utterance, due_s: float, sample: Sample) -> Sample:
        return await self.speak(
            utterance, due_s, Sample(sample.utterance, sample.started_s, user=self.NAMELESS)
        )


async def closed(options: argparse.Namespace, users: Users, utterances: Any, clients: int) -> Level:
    """Users who ask again and again."""
    await users.connect(range(clients))
    name = f"{clients} users"
    async with timed(name) as (progress, lag, level):
        samples = await closed_loop(
            users.speak,
            utterances,
            clients,
            UNLIMITED,
            options.seconds,
            progress.step,
            arrive_s=ARRIVE_SHARE * options.seconds,
        )
    return {**level, "load": name, **figures(samples, level["wall_s"], clients), "client_lag_ms": lag()}


async def opened(
    options: argparse.Namespace, users: Users, utterances: Any, factor: float, capacity: float
) -> Level:
    """Requests that come whatever became of those before."""
    await users.connect([users.NAMELESS])
    name = f"{factor:g} times the capacity"
    due = due_times(factor * capacity, UNLIMITED, options.seconds, "poisson", options.seed)
    async with timed(name) as (progress, lag, level):
        samples = await open_loop(users.speak_nameless, utterances, due, UNLIMITED, progress.step)
    level |= {"load": name, "factor": factor}
    return {**level, **figures(samples, level["wall_s"]), "client_lag_ms": lag()}


@contextlib.asynccontextmanager
async def timed(name: str) -> Any:
    """Around a level: its progress, how late this process was, and a dictionary that gets its duration."""
    progress, meter = Progress(name), LagMeter()
    level: Level = {}
    measuring = asyncio.create_task(meter.run())
    start = time.perf_counter()
    yield progress, lambda: spread(meter.lags_s), level
    level["wall_s"] = time.perf_counter() - start
    measuring.cancel()
    progress.end()


def write(options: argparse.Namespace, levels: list[Level]) -> None:
    report = {
        "benchmark": "overload",
        **provenance(),
        "verdicts": verdicts(levels),
        "levels": levels,
    }
    options.output_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, ensure_ascii=False, indent=1)
    (options.output_dir / "overload.json").write_text(text, encoding="utf-8")
    (options.output_dir / "overload.md").write_text(markdown(report), encoding="utf-8")
    print(markdown(report))


def markdown(report: dict[str, Any]) -> str:
    """The report for reading."""
    parts = [
        f"# Overload\n\n{report['time']}, commit {report['commit']}, {report['machine']['cpu']}, "
        f"{report['machine']['cores']} cores\n\n`{report['command']}`",
        table(COLUMNS, [row(level) for level in report["levels"]]),
        "\n".join(f"- {verdict}" for verdict in report["verdicts"]),
    ]
    return "\n\n".join(parts) + "\n"


def row(level: Level) -> list[str]:
    share = level["continuous_share"]
    served = f"{level['served_least']} to {level['served_most']}" if "served_least" in level else "-"
    return [
        level["load"],
        str(level["asked"]),
        str(level["admitted"]),
        str(level["refused"]),
        str(level["failed"]),
        percentiles(level["ttfb_ms"], "p50", "p95", "p99"),
        percentiles(level["refusal_ms"], "p50", "p95", "max"),
        "-" if share is None else f"{share:.1%}",
        served,
        percentiles(level.get("wait_ms"), "p50", "p95", "max", scale=1e-3, digits=1),
        f"{level['audio_s_per_s']:.1f}",
        percentiles(level["client_lag_ms"], "p99"),
    ]


def percentiles(found: dict[str, float] | None, *names: str, scale: float = 1.0, digits: int = 0) -> str:
    return "-" if found is None else " / ".join(f"{scale * found[name]:.{digits}f}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
