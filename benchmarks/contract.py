#!/usr/bin/env python3
"""The field's public contract: requests come by chance at a rate; when is speech heard, and is it whole?

    python benchmarks/contract.py --front http://127.0.0.1:8080 --grpc 127.0.0.1:8001 --output-dir results
    python benchmarks/contract.py --front http://127.0.0.1:8080 --short --rates 1,10,20
    python benchmarks/contract.py --front http://127.0.0.1:8080 --texts seedtts_testset/en/meta.lst
    python benchmarks/contract.py --front http://127.0.0.1:8080 --short --hear 40 \\
        --recogniser measuring.heard:Recogniser --embedder demo_voice/campplus.onnx \\
        --reference demo_voice/reference.flac
    python benchmarks/contract.py --own-cost --short --rates 10,60

Load and measures are those of Nari's tts_bench (github.com/nari-labs/benchmarks): an open loop of Poisson
arrivals, 30 s that are not counted and 300 s that are, three seeds, no cushion, one voice, whole texts, raw
PCM of 16 bits over OpenAI's API. Here gRPC is measured, too. Its texts are the 1,088 English ones of
Seed-TTS, which --texts takes. Without it the texts are our own, generated: 1,088 sentences, as many of each
number of words, and with 61 characters on the average where those have 64. Answers of the field's models last
5 to 5.7 s; made weights speak slowly, so that --of-words 0.74 gives as long ones.

Two things differ: times count from before a connection is sought, not from the first byte that is sent, and
percentiles are interpolated. How late requests were sent is a column. A rate takes five and a half minutes
for each seed. results.json and results.md are written after each run, so that a later one may be stopped.
With --hear some answers of each run are examined after it, and the table says what they sound like: the
loudness of their seams, with --recogniser the words that are heard, with --embedder and --reference whether
it is the voice. No speed is bought with sound where these stay the same from row to row.
--own-cost asks a server on this machine that answers at once: its first byte is what the client, that server
and the way between them take.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from cosyvoice_client import AsyncSpeechClient, AudioChunk, ClientError, SpeechRequest
from measuring.audible import Onset, listened
from measuring.contract_figures import contract_figures, contract_table, legend, of_seeds
from measuring.contract_texts import own_texts
from measuring.figures import Figures, spread
from measuring.front_speech import FrontSpeech
from measuring.hearing import Recording, add_hearing, check_hearing, chosen, hearing_of, kept
from measuring.load import Sample, due_times, measure, open_loop
from measuring.machine import provenance
from measuring.progress import Progress
from measuring.trivial_server import trivial_server
from measuring.workload import Utterance, WorkloadError, endless, read_manifest

MAX_IN_FLIGHT, TIMEOUT_S = 4096, 120.0
"""Most requests at a time and the longest one of tts_bench's reports."""
GRPC_CONNECTIONS = 8
INTERRUPTED = 130

Speech = Callable[[str], AsyncGenerator[AudioChunk, None]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    try:
        texts = read_manifest(options.texts) if options.texts else own_texts(options.of_words)
        asyncio.run(run(options, texts))
    except (ClientError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, ClientError) else 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(%(default)s)"
    parser.add_argument("--front", metavar="URL", help="of a front, such as http://127.0.0.1:8080")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="of a server")
    parser.add_argument("--own-cost", action="store_true", help="measure the client on a trivial server")
    parser.add_argument(
        "--rates", type=rates, default="1,2,4,8,10,16,20,30,40,60", metavar="R,R", help="a second " + default
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each rate " + default)
    parser.add_argument("--warmup", type=float, default=30.0, metavar="S", help="not counted " + default)
    parser.add_argument("--seconds", type=float, default=300.0, metavar="S", help="counted " + default)
    parser.add_argument("--short", action="store_true", help="one seed and 60 s, where nothing else is said")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="lines utt|prompt_text|prompt_wav|text")
    parser.add_argument(
        "--of-words",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="of the words of our own texts " + default,
    )
    parser.add_argument("--model", default="tts-1", help="of the front " + default)
    parser.add_argument("--voice", default="default", help=default)
    parser.add_argument("--language", default="English", help=default)
    parser.add_argument("--key", default="", help="of the front")
    parser.add_argument("--output-dir", type=Path, default=Path("results"), help=default)
    add_hearing(parser)
    options = parser.parse_args(arguments)
    if options.short:
        parser.set_defaults(seeds=1, seconds=60.0)
        options = parser.parse_args(arguments)
    if not (options.front or options.grpc or options.own_cost):
        parser.error("give --front, --grpc or --own-cost")
    if options.seeds < 1 or options.seconds <= 0 or options.warmup < 0:
        parser.error("--seeds must be 1 or more, --seconds over 0, --warmup 0 or more")
    check_hearing(parser, options)
    return options


def share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(text)
    return value


def rates(text: str) -> list[float]:
    values = [float(value) for value in text.split(",")]
    if not all(0 < value < math.inf for value in values):
        raise ValueError(text)
    return values


async def run(options: argparse.Namespace, texts: list[Utterance]) -> None:
    """Measure every wire at every rate with every seed, and write the figures after each."""
    rows: list[dict[str, Any]] = []
    hearing = hearing_of(options, texts)
    async with AsyncExitStack() as stack:
        wires = await opened(options, stack)
        for speech in wires.values():
            async for _ in speech(texts[0].text):  # What can't speak is an error before anything is measured.
                pass
        for wire, speech in wires.items():
            for rate in options.rates:
                runs: list[Figures] = []
                rows.append({"wire": wire, "rate": rate, "runs": runs})
                for seed in range(options.seeds):
                    progress = Progress(f"{wire}, {rate:g}/s, seed {seed}")
                    figures, recordings = await measured(options, speech, texts, rate, seed, progress)
                    progress.end()
                    if options.hear:
                        figures["heard"] = await asyncio.to_thread(hearing.figures, recordings)
                    runs.append({"seed": seed, **figures})
                    rows[-1]["figures"] = of_seeds(runs)
                    write(options, len(texts), rows)
    print((options.output_dir / "results.md").read_text("utf-8"))


async def opened(options: argparse.Namespace, stack: AsyncExitStack) -> dict[str, Speech]:
    """Functions that speak a text, by the name of their wire; connections are closed with the stack."""
    wires: dict[str, Speech] = {}
    body = {"model": options.model, "voice": options.voice, "language": options.language}
    trivial = stack.enter_context(trivial_server()) if options.own_cost else None
    for name, url in (("no server", trivial), ("OpenAI's API", options.front)):
        if url:
            front = FrontSpeech(url, body, options.key, TIMEOUT_S)
            stack.push_async_callback(front.close)
            wires[name] = front.speak
    if options.grpc:
        clients = [AsyncSpeechClient(options.grpc, timeout_s=TIMEOUT_S) for _ in range(GRPC_CONNECTIONS)]
        for client in clients:
            await stack.enter_async_context(client)
        turns = cycle(clients)
        voice = None if options.voice == "default" else options.voice
        how = {"voice": voice, "language": options.language}
        wires["gRPC"] = lambda text: next(turns).speak(SpeechRequest(text, **how))
    return wires


async def measured(
    options: argparse.Namespace,
    speech: Speech,
    texts: list[Utterance],
    rate: float,
    seed: int,
    progress: Progress,
) -> tuple[Figures, list[Recording]]:
    """Figures of one rate with one seed, which decides when requests come and the order of the texts.

    The recordings are those of the requests that --hear chose and that were answered in full.
    """
    lags_s: list[float] = []
    recordings: list[Recording] = []
    due = due_times(rate, sys.maxsize, options.warmup + options.seconds, "poisson", seed)
    heard = chosen(due, options.warmup, options.hear, seed)

    async def speak(utterance: Utterance, due_s: float, sample: Sample) -> Sample:
        sent_s, onset = time.perf_counter(), Onset()
        lags_s.append(sent_s - due_s)
        recording = Recording(utterance.text)
        async with aclosing(speech(utterance.text)) as stream:
            audible = listened(stream, onset)
            if sample.started_s in heard:
                audible = kept(audible, recording)
            sample = await measure(audible, sent_s, sample)
        if recording.chunks and sample.error is None:
            recordings.append(recording)
        return replace(sample, onset_s=onset.at_s)

    started, used = time.perf_counter(), time.process_time()
    samples = await open_loop(speak, endless(texts, seed), due, MAX_IN_FLIGHT, progress.step)
    cpu = (time.process_time() - used) / (time.perf_counter() - started)
    figures = {
        **contract_figures(samples, options.warmup, options.seconds),
        "lag_ms": spread(lags_s),
        "client_cpu": round(cpu, 4),
    }
    return figures, recordings


def write(options: argparse.Namespace, texts: int, rows: list[dict[str, Any]]) -> None:
    """Write what has been measured, for programs and for people."""
    settings = {name: str(value) for name, value in vars(options).items() if name != "key"}
    report = {"benchmark": "contract", **provenance(), "settings": settings, "texts": texts, "rows": rows}
    machine = report["machine"]
    hardware = ", ".join([machine["cpu"], f"{machine['cores']} cores", *machine["gpus"]])
    source = options.texts or "our own, as long as Seed-TTS's"
    parts = [
        "# The field's contract",
        f"{report['time']}, commit {report['commit']}, {hardware}; {texts} texts ({source}), "
        f"{options.warmup:g} s + {options.seconds:g} s, seeds: {options.seeds}",
        contract_table(rows),
        legend(rows),
    ]
    options.output_dir.mkdir(parents=True, exist_ok=True)
    content = json.dumps(report, ensure_ascii=False, indent=1)
    (options.output_dir / "results.json").write_text(content, "utf-8")
    (options.output_dir / "results.md").write_text("\n\n".join(parts) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
