#!/usr/bin/env python3
"""Measure a running server with a number of clients at a time, or of requests per second.

    python benchmarks/client_server.py --concurrency 1,2,4,8 --output-dir results/streaming
    python benchmarks/client_server.py --mode offline --concurrency 1,4
    python benchmarks/client_server.py --rate 0.5,1,2 --arrivals poisson --seconds 60
    python benchmarks/client_server.py --concurrency 256 --listen --requests 20000 --seconds 60
    python benchmarks/client_server.py --manifest set.txt     lines of utt|prompt_text|prompt_wav|text

Clients (a closed loop) ask again when they have their answer, with --listen when they have heard it. Requests
per second (an open loop) come when they are due, whatever became of those before, and their times count from
then. Every level ends after --requests requests or --seconds seconds, whichever is first. Without --manifest
or --split-name the built-in sentences are spoken. The output directory gets results.json, results.md and
results.png.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cosyvoice_client import (
    AsyncSpeechClient,
    AudioChunk,
    ClientError,
    Reference,
    SpeechRequest,
    read_reference,
)
from cosyvoice_client.command import add_options, add_voice, reference, spoken_options
from cosyvoice_client.reference import SERVER_RATE, resample
from cosyvoice_client.request import OFFLINE_MODEL, STREAMING_MODEL
from measuring.figures import spread, summarise
from measuring.load import LagMeter, Sample, closed_loop, due_times, measure, open_loop
from measuring.machine import provenance
from measuring.plot import HINT, can_plot, plot
from measuring.progress import Progress
from measuring.report import load_name, markdown
from measuring.triton_statistics import Statistics, difference
from measuring.workload import (
    Utterance,
    VoiceReference,
    WorkloadError,
    add_instruction,
    built_in,
    endless,
    instructed,
    read_manifest,
    read_split,
)

INTERRUPTED = 130
SETTLE_S = 0.2
"""Triton counts a request, and those of the stages behind it, a moment after it has answered."""
LISTENERS_ARRIVE_S = 10.0
"""Over which they come, one after another; from then on each is somewhere in what he hears."""
COUNTED_S = 5.0
"""Longest wait for one more of those counts: of several servers behind an address, one tells of its own."""
Level = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    levels: list[Level] = []
    status = 0
    try:
        utterances = read_utterances(options)
        requests = {utterance.name: request(options, utterance) for utterance in utterances}
        server = asyncio.run(benchmark(options, utterances, requests, levels))
    except (ClientError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, ClientError) else 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        server, status = {}, INTERRUPTED
    if levels:
        write(options, levels, server)
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", "--server-url", default="localhost:8001", help="gRPC (%(default)s)")
    parser.add_argument("--mode", choices=("streaming", "offline"), default="streaming")
    parser.add_argument("--model", "--model-name", help="default: that of the mode")
    parser.add_argument("--output-dir", "--log-dir", type=Path, default=Path("results"))
    parser.add_argument(
        "--plot", action=argparse.BooleanOptionalAction, default=can_plot(), help="needs matplotlib"
    )
    load = parser.add_argument_group("load")
    load.add_argument(
        "--concurrency", "--num-tasks", type=numbers(int), metavar="N,N", help="default: 1,2,4,8"
    )
    load.add_argument(
        "--listen", action="store_true", help="clients hear an answer to its end before they ask again"
    )
    load.add_argument("--rate", type=numbers(float), metavar="R,R", help="requests per second")
    load.add_argument("--arrivals", choices=("poisson", "constant"), default="poisson", help="of --rate")
    load.add_argument("--requests", type=int, default=40, help="most per level (%(default)s)")
    load.add_argument("--seconds", type=float, default=120, help="most per level (%(default)s)")
    load.add_argument("--warmup", type=int, default=4, help="requests before, not counted (%(default)s)")
    load.add_argument("--timeout", type=float, default=60, help="longest silence of the server (%(default)s)")
    load.add_argument("--max-in-flight", type=int, default=512, help="of --rate (%(default)s)")
    load.add_argument("--connections", type=int, default=8, help="most at a time (%(default)s)")
    load.add_argument("--order-seed", type=int, default=0, help="of texts and arrivals (%(default)s)")
    texts = parser.add_argument_group("texts").add_mutually_exclusive_group()
    texts.add_argument(
        "--manifest", "--manifest-path", type=Path, help="lines utt|prompt_text|prompt_wav|text"
    )
    texts.add_argument("--split-name", help="of CosyVoice's data sets; needs the package datasets")
    add_voice(parser.add_argument_group("voice of texts without a reference (default: the server's)"))
    manner = parser.add_argument_group("how they are spoken (defaults: the server's)")
    add_options(manner)
    manner.add_argument("--words", action="store_true", default=None, help="tell when each word is heard")
    add_instruction(manner)
    options = parser.parse_args(arguments)
    if options.plot and not can_plot():
        parser.error(HINT)
    if options.listen and options.rate is not None:
        parser.error("--listen is about the clients of --concurrency, not of --rate")
    if options.concurrency is None and options.rate is None:
        options.concurrency = [1, 2, 4, 8]
    return options


def numbers(kind: type) -> Callable[[str], list[Any]]:
    """Reads a list such as 1,2,4."""

    def read(text: str) -> list[Any]:
        values = [kind(value) for value in text.split(",")]
        if min(values) <= 0:
            raise ValueError(text)
        return values

    read.__name__ = f"list of positive {kind.__name__}"
    return read


def read_utterances(options: argparse.Namespace) -> list[Utterance]:
    """Texts to be spoken."""
    if options.manifest is not None:
        return read_manifest(options.manifest)
    if options.split_name is not None:
        return read_split(options.split_name)
    return built_in()


def request(options: argparse.Namespace, utterance: Utterance) -> SpeechRequest:
    """The request for an utterance; its reference is read and converted here, before anything is timed."""
    own = utterance.reference
    voice = reference(options) if own is None else client_reference(own)
    text = utterance.text
    if options.instruct_text is None:
        text, voice = instructed(options.instruction, text, voice)
    return SpeechRequest(text, voice, **spoken_options(options))


def client_reference(own: VoiceReference) -> Reference:
    if isinstance(own.audio, Path):
        return read_reference(own.audio, own.text)
    samples, rate = own.audio
    return Reference(resample(samples, rate, SERVER_RATE), own.text)


async def benchmark(
    options: argparse.Namespace,
    utterances: list[Utterance],
    requests: dict[str, SpeechRequest],
    levels: list[Level],
) -> dict[str, Any]:
    """Measure every level, appending its results to ``levels``; returns what the server says it is."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(options)) for _ in range(options.connections)]
        server = await clients[0].server()
        texts = endless(utterances, options.order_seed)
        speak = speaker(options, clients, requests)
        if options.warmup:
            users = max(options.concurrency or [1])
            progress = Progress("warm-up", options.warmup)
            before = await clients[0].statistics()
            spoken = await closed_loop(speak, texts, users, options.warmup, options.seconds, progress.step)
            progress.end()
            await counted(options, clients[0], before, spoken)
        for level in planned(options):
            levels.append(await run_level(options, level, clients[0], speak, texts))
    return server


def connect(options: argparse.Namespace) -> AsyncSpeechClient:
    model = entry_model(options)
    return AsyncSpeechClient(options.url, model, model, options.timeout)


def speaker(
    options: argparse.Namespace, clients: list[AsyncSpeechClient], requests: dict[str, SpeechRequest]
) -> Callable[[Utterance, float, Sample], Any]:
    """A function that speaks an utterance over the next connection and measures it."""
    turns = itertools.cycle(clients)

    async def speak(utterance: Utterance, due_s: float, sample: Sample) -> Sample:
        stream = chunks(options.mode, next(turns), requests[utterance.name])
        async with contextlib.aclosing(stream):
            return await measure(stream, due_s, sample)

    return speak


async def chunks(
    mode: str, client: AsyncSpeechClient, request: SpeechRequest
) -> AsyncGenerator[AudioChunk, None]:
    if mode == "offline":
        yield await client.synthesize(request)
        return
    async with contextlib.aclosing(client.speak(request)) as stream:
        async for chunk in stream:
            yield chunk


def planned(options: argparse.Namespace) -> Iterator[Level]:
    """Name of what tells the levels apart."""
    for clients in options.concurrency or []:
        yield {"clients": clients, "listen": options.listen}
    for rate in options.rate or []:
        yield {"rate": rate, "arrivals": options.arrivals}


async def run_level(
    options: argparse.Namespace,
    level: Level,
    client: AsyncSpeechClient,
    speak: Callable[[Utterance, float, Sample], Any],
    texts: Iterator[Utterance],
) -> Level:
    """Measure one level."""
    progress = Progress(load_name(level))
    before = await client.statistics()
    meter = LagMeter()
    lag = asyncio.create_task(meter.run())
    start = time.perf_counter()
    if "clients" in level:
        samples = await closed_loop(
            speak,
            texts,
            level["clients"],
            options.requests,
            options.seconds,
            progress.step,
            arrive_s=LISTENERS_ARRIVE_S if options.listen else 0.0,
            listen=options.listen,
        )
    else:
        due = due_times(
            level["rate"], options.requests, options.seconds, options.arrivals, options.order_seed
        )
        samples = await open_loop(speak, texts, due, options.max_in_flight, progress.step)
    wall_s = time.perf_counter() - start
    lag.cancel()
    progress.end()
    after = await counted(options, client, before, samples)
    return {
        **level,
        "figures": summarise(samples, wall_s),
        "client_lag_ms": spread(meter.lags_s),
        "triton": difference(before, after),
        "samples": [describe(sample) for sample in samples],
    }


async def counted(
    options: argparse.Namespace, client: AsyncSpeechClient, before: Statistics, samples: Sequence[Sample]
) -> Statistics:
    """Triton's counters as soon as they hold what was answered since ``before``."""
    model = entry_model(options)
    answered = sum(sample.error is None for sample in samples)
    seen, until = -1.0, math.inf
    while True:
        await asyncio.sleep(SETTLE_S)
        after = await client.statistics()
        found = difference(before, after).get(model, {}).get("requests", 0)
        if found > seen:
            seen, until = found, time.monotonic() + COUNTED_S
        if found >= answered or time.monotonic() > until:
            return after


def entry_model(options: argparse.Namespace) -> str:
    """The model that is asked."""
    return options.model or (OFFLINE_MODEL if options.mode == "offline" else STREAMING_MODEL)


def describe(sample: Sample) -> dict[str, Any]:
    """A sample for the JSON file, times in seconds."""
    return {
        "utterance": sample.utterance,
        "started_s": round(sample.started_s, 4),
        "latency_s": round(sample.latency_s, 4),
        "arrivals": [[round(at_s, 4), round(seconds, 4)] for at_s, seconds in sample.timeline.arrivals],
        "finish_reasons": sample.finish_reasons,
        "error": sample.error,
    }


def write(options: argparse.Namespace, levels: list[Level], server: dict[str, Any]) -> None:
    """Write the results, and print the table."""
    settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
    }
    report = {
        "benchmark": "client_server",
        **provenance(),
        "mode": options.mode,
        "server": {"name": server.get("name", "server"), "version": server.get("version", "")},
        "settings": settings,
        "levels": levels,
    }
    options.output_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, ensure_ascii=False, indent=1)
    (options.output_dir / "results.json").write_text(text, encoding="utf-8")
    (options.output_dir / "results.md").write_text(markdown(report), encoding="utf-8")
    print(markdown(report))
    if options.plot:
        plot(report, options.output_dir / "results.png")
    else:
        print(f"no plot: {'not asked for' if can_plot() else HINT}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
