"""What the front adds, what it holds, and what clients leave behind that hang up.

The server is the one of chain_overhead.py: instant models that stream 1 s of audio every 100 ms. The front is
a process of its own before it.

    python benchmarks/front.py --requests 50 --streams 1 50 200 --aborts 1000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from chain_overhead import DIRECTORY_VARIABLE, TEXT, serve
from cosyvoice_client import AsyncSpeechClient, SpeechRequest, Timeline

SAMPLE_BYTES = 2 * 24_000
"""Of a second of pcm."""
RUNNING = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50, help="one after another, for the added latency")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 50, 200], help="at a time")
    parser.add_argument("--aborts", type=int, default=1000, help="connections that are closed early")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[DIRECTORY_VARIABLE] = folder
        places = f"max_inflight_utterances={max(*options.streams, 64)}"
        with serve(Path(folder), places) as server, front(server.grpc_url) as (port, process):
            asyncio.run(measure(options, server.grpc_url, port, process))


async def measure(options: argparse.Namespace, grpc_url: str, port: int, process: int) -> None:
    await first_byte(port, "pcm")
    await added_latency(grpc_url, port, options.requests)
    for count in options.streams:
        await held_streams(port, count, process)
    if options.aborts:
        await aborted(port, options.aborts, process)


@contextmanager
def front(grpc_url: str) -> Iterator[tuple[int, int]]:
    """Port and process of a front."""
    command = [sys.executable, "-m", "cosyvoice_front", f"front.grpc_url={grpc_url}", "front.port=0"]
    with tempfile.NamedTemporaryFile("w+") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            while (found := RUNNING.search(Path(log.name).read_text("utf-8"))) is None:
                assert process.poll() is None, "the front has ended"
                time.sleep(0.05)
            yield int(found[1]), process.pid
        finally:
            process.terminate()


async def added_latency(grpc_url: str, port: int, requests: int) -> None:
    """First audio by gRPC and through the front, in turns."""
    columns: dict[str, list[float]] = {"gRPC": [], "pcm": [], "mp3": [], "opus": []}
    async with AsyncSpeechClient(grpc_url) as client:
        for _ in range(requests):
            columns["gRPC"].append(await first_chunk(client))
            for format in ("pcm", "mp3", "opus"):
                columns[format].append(await first_byte(port, format))
    print("| first audio, ms | p50 | p95 | p50 added |\n|---|---|---|---|")
    base = np.percentile(columns["gRPC"], 50)
    for name, seconds in columns.items():
        p50, p95 = np.percentile(seconds, [50, 95])
        print(f"| {name} | {1e3 * p50:.1f} | {1e3 * p95:.1f} | {1e3 * (p50 - base):.1f} |", flush=True)


async def first_chunk(client: AsyncSpeechClient) -> float:
    """Seconds; the stream is read to its end, so that the next request meets an idle server."""
    timeline = Timeline()
    async for chunk in client.speak(SpeechRequest(TEXT, seed=1)):
        timeline.add(chunk.arrived_s, chunk.seconds)
    return timeline.ttfb_s or float("nan")


async def first_byte(port: int, format: str) -> float:
    started = time.perf_counter()
    async with asked(port, format) as reader:
        await body_begins(reader)
        took = time.perf_counter() - started
        await reader.read()
    return took


async def held_streams(port: int, count: int, process: int) -> None:
    """Streams of pcm side by side, and how many of them a listener would have heard without a silence."""
    before = cpu_seconds(process)
    started = time.perf_counter()
    timelines = await asyncio.gather(*(listen(port) for _ in range(count)))
    took, used = time.perf_counter() - started, cpu_seconds(process) - before
    ttfb = [timeline.ttfb_s for timeline in timelines if timeline.ttfb_s is not None]
    whole = sum(bool(timeline.arrivals) and not timeline.underruns_s for timeline in timelines)
    audio = sum(timeline.audio_s for timeline in timelines)
    print(
        f"{count} streams: {len(ttfb)} spoke, {whole} without a silence, first audio p50 "
        f"{1e3 * np.percentile(ttfb, 50):.0f} ms, {audio / took:.0f} s of audio per second, "
        f"{1e3 * used / max(audio, 1e-9):.2f} ms of the front's CPU for one of them",
        flush=True,
    )


async def listen(port: int) -> Timeline:
    started, timeline = time.perf_counter(), Timeline()
    async with asked(port, "pcm") as reader:
        if b" 200 " not in await reader.readline():
            return timeline
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            timeline.add(time.perf_counter() - started, size / SAMPLE_BYTES)
    return timeline


async def aborted(port: int, count: int, process: int) -> None:
    """Connections that are closed at the first byte, or before it; then what is left of them."""
    for batch in range(0, count, 50):
        await asyncio.gather(*(hang_up(port, number) for number in range(batch, min(count, batch + 50))))
        if batch == 0:
            await asyncio.sleep(1.0)  # caches are warm now
            first = facts(process)
    await asyncio.sleep(2.0)
    print(f"{count} aborted: after the first 50 {first}, at the end {facts(process)}")
    await first_byte(port, "pcm")


async def hang_up(port: int, number: int) -> None:
    async with asked(port, "mp3") as reader:
        if number % 2:
            await reader.readline()


@asynccontextmanager
async def asked(port: int, format: str) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(
        {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": format, "seed": 1}
    )
    head = (
        f"POST /v1/audio/speech HTTP/1.1\r\nHost: front\r\nConnection: close\r\nContent-Length: {len(body)}"
    )
    writer.write(f"{head}\r\n\r\n{body}".encode())
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def body_begins(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.readline()
    await reader.read(1)


def facts(process: int) -> dict[str, Any]:
    """Memory, files and threads of a process."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    numbers = {key: int(re.search(rf"^{key}:\s+(\d+)", status, re.M)[1]) for key in ("VmRSS", "Threads")}  # type: ignore[index]
    files = len(os.listdir(f"/proc/{process}/fd"))
    return {"MiB": numbers["VmRSS"] >> 10, "threads": numbers["Threads"], "files": files}


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
