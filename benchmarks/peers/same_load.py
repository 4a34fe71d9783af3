#!/usr/bin/env python3
"""Ask any server of OpenAI's speech API for the same texts in one voice, by clients in a row and at rates.

    python benchmarks/peers/same_load.py --front http://127.0.0.1:8091 --voice demo \\
        --reference demo.wav --reference-text "You are a helpful assistant.<|endofprompt|>What it says."

The reference is sent to /v1/audio/voices first. Texts are those of benchmarks/contract.py, in the same order
for every server. An answer that has not ended ``--drain`` seconds after a level's time is given up and counts
as unanswered, so that a server that falls behind ends its level, too. Answers are streamed as raw PCM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring.contract_texts import own_texts
from measuring.figures import Figures, summarise
from measuring.front_speech import FrontSpeech
from measuring.load import Sample, closed_loop, due_times, open_loop
from measuring.load import measure as received
from measuring.machine import provenance
from measuring.report import table
from measuring.workload import Utterance, endless

SEED, TIMEOUT_S, MAX_IN_FLIGHT = 0, 300.0, 4096
UNANSWERED = "unanswered"
CONSENT = "The speaker agreed to the use of this voice in measurements."
COLUMNS = (
    "load", "requests", "first byte p50 / p95 ms", "speech s/s", "answer s", "continuous", "gapless",
    "RTF p50 / p95", "errors",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    if options.reference:
        add_voice(options)
    levels = asyncio.run(measured(options))
    report = {**provenance(), "settings": {name: str(value) for name, value in vars(options).items()}}
    if options.output:
        options.output.write_text(json.dumps({**report, "levels": levels}, indent=1), "utf-8")
    print(table(COLUMNS, [row(level, figures) for level, figures in levels.items()]))
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(%(default)s)"
    parser.add_argument("--front", required=True, metavar="URL", help="such as http://127.0.0.1:8091")
    parser.add_argument("--model", default="tts-1", help=default)
    parser.add_argument("--voice", default="default", help=default)
    parser.add_argument("--reference", type=Path, metavar="FILE", help="a recording to add as this voice")
    parser.add_argument("--reference-text", default="", metavar="TEXT", help="what the recording says")
    parser.add_argument(
        "--clients", type=numbers, default="1,4,16", metavar="N,N", help="at a time " + default
    )
    parser.add_argument("--rates", type=numbers, default="1,4,8", metavar="R,R", help="a second " + default)
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of each level " + default)
    parser.add_argument("--drain", type=float, default=20.0, metavar="S", help="after each level " + default)
    parser.add_argument("--warmup", type=float, default=10.0, metavar="S", help="of 4 clients " + default)
    parser.add_argument("--output", type=Path, metavar="FILE", help="all figures, as JSON")
    return parser.parse_args(arguments)


def numbers(text: str) -> list[float]:
    return [float(value) for value in text.split(",") if value]


def add_voice(options: argparse.Namespace) -> None:
    """Send the recording, with its words and the consent; an HTTPError tells why it is refused."""
    fields = {"name": options.voice, "ref_text": options.reference_text, "consent": CONSENT}
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    file = f'name="audio_sample"; filename="{options.reference.name}"\r\nContent-Type: audio/wav'
    parts.append(f"--{boundary}\r\nContent-Disposition: form-data; {file}\r\n\r\n".encode())
    body = b"".join([*parts, options.reference.read_bytes(), f"\r\n--{boundary}--\r\n".encode()])
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    request = urllib.request.Request(f"{options.front}/v1/audio/voices", body, headers)
    urllib.request.urlopen(request, timeout=TIMEOUT_S).close()


async def measured(options: argparse.Namespace) -> dict[str, Figures]:
    """Figures by level, after a warm-up that is not counted."""
    body = {"model": options.model, "voice": options.voice, "language": "English"}
    front = FrontSpeech(options.front, body, "", TIMEOUT_S)
    levels: dict[str, Figures] = {}
    try:
        if options.warmup:
            await level(front, options.warmup, options.drain, clients=4)
        for clients in options.clients:
            levels[f"{clients:g} clients"] = await level(
                front, options.seconds, options.drain, clients=int(clients)
            )
        for rate in options.rates:
            levels[f"{rate:g} a second"] = await level(front, options.seconds, options.drain, rate=rate)
    finally:
        await front.close()
    return levels


async def level(
    front: FrontSpeech, seconds: float, drain_s: float, clients: int = 0, rate: float = 0.0
) -> Figures:
    """Figures of one level, of clients or of a rate; times of requests count from when they were due."""
    started, ends = time.perf_counter(), asyncio.get_running_loop().time() + seconds + drain_s

    async def speak(utterance: Utterance, due_s: float, sample: Sample) -> Sample:
        try:
            async with asyncio.timeout_at(ends), aclosing(front.speak(utterance.text)) as chunks:
                return await received(chunks, due_s, sample)
        except TimeoutError:
            return replace(sample, latency_s=time.perf_counter() - due_s, error=UNANSWERED)

    texts = endless(own_texts(), SEED)
    if clients:
        samples = await closed_loop(speak, texts, clients, sys.maxsize, seconds, ignored)
    else:
        due = due_times(rate, sys.maxsize, seconds, "poisson", SEED)
        samples = await open_loop(speak, texts, due, MAX_IN_FLIGHT, ignored)
    return summarise(samples, time.perf_counter() - started)


def ignored(failed: bool) -> None:
    """Progress is not shown."""


def row(name: str, figures: Figures) -> list[str]:
    failed = sum(figures["errors"].values())
    spoken = figures["requests"] - failed
    errors = ", ".join(f"{count} {kind}" for kind, count in figures["errors"].items()) or "0"
    return [
        name,
        f"{figures['requests']}",
        of(figures["ttfb_ms"], ".0f"),
        f"{figures['audio_s_per_s'] or 0:.1f}",
        f"{figures['audio_s'] / spoken:.1f}" if spoken else "-",
        f"{100 * (figures['continuous_share'] or 0):.1f} %",
        f"{100 * (figures['gapless_share'] or 0):.1f} %",
        of(figures["rtf_per_request"], ".2f"),
        errors,
    ]


def of(figures: dict[str, Any] | None, form: str) -> str:
    return "-" if figures is None else f"{figures['p50']:{form}} / {figures['p95']:{form}}"


if __name__ == "__main__":
    sys.exit(main())
