"""Latency that the front adds, streams that it holds, and traces of clients that hang up.

The server is made for it: timed stages take the places of the speech LM and token2wav, and speak ten seconds
a second to each listener. The front is a process of its own before it. If tritonserver ends before its time,
the end of its log is printed.

    python benchmarks/front.py --requests 50 --streams 1 50 200 --aborts 1000
    taskset -c 2-15 python benchmarks/front.py --front-cores 0,1    # nothing shares the front's cores
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
from functools import partial
from pathlib import Path

import numpy as np

from cosyvoice_client import AsyncSpeechClient, SpeechRequest, Timeline
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server
from making import make_checkpoint
from measuring.speed_curve import Curve
from measuring.timed_stages import with_timed_stages
from measuring.work_left import gauges

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repo"
COUNTS = range(1, 513)
LIKE_ONE = Curve(
    tuple(map(float, COUNTS)),
    tuple(10.0 * count for count in COUNTS),
    ((10.0, 10.1, 10.2, 10.3),) * len(COUNTS),
)
"""A machine that speaks to so many as it does to one: first audio after 10 ms, then ten seconds a second."""
TEXT = "The train to the coast leaves from platform four."

SAMPLE_BYTES = 2 * 24_000
"""Bytes of a second of pcm."""
AT_A_TIME = 50
SETTLE_S = 10.0
RUNNING = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50, help="one after another, for the added latency")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 50, 200], help="at a time")
    parser.add_argument("--aborts", type=int, default=1000, help="connections that are closed early")
    parser.add_argument("--front-cores", type=cores, help="that the front runs on, such as 0,1; default: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = f"max_inflight_utterances={max(*options.streams, 64)}"
        with (
            serve(Path(folder), places) as server,
            alive(server.session, Path(folder) / "server.log"),
            front(server.grpc_url, options.front_cores) as (port, process),
        ):
            asyncio.run(measure(options, server, port, process))


def serve(folder: Path, *assignments: str) -> Server:
    """The repository as it is rendered, with timed stages and further settings."""
    checkpoint = make_checkpoint(folder / "checkpoint", "tiny", seed=0)
    given = [
        f"checkpoint_dir={checkpoint}",
        f"voices_dir={folder}/voices",
        "max_hop_tokens=25",
        "tensorrt_llm.engine=torch",  # which needs nothing built
        "token2wav.backend=torch",
    ]
    settings = Settings.read([*given, *assignments])
    repository = folder / "repository"
    write(render(TEMPLATES, settings.resolved(Machine.here())), repository)
    with_timed_stages(repository, LIKE_ONE)
    ports = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "server.log",
        probe_interval_s=0.0,
    )
    return Server(repository, ports)


def cores(text: str) -> set[int]:
    return {int(number) for number in text.split(",")}


@contextmanager
def alive(session: int, log: Path) -> Iterator[None]:
    """Whatever is measured means nothing unless tritonserver, which leads the session, lives to the end."""
    try:
        yield
    finally:
        if not processes.is_alive(session):
            print(*log.read_text("utf-8", "replace").splitlines()[-60:], sep="\n", file=sys.stderr)
            raise SystemExit("tritonserver has ended")


async def measure(options: argparse.Namespace, server: Server, port: int, process: int) -> None:
    await first_byte(port, "pcm")
    if options.requests:
        await added_latency(server.grpc_url, port, options.requests)
    for count in options.streams:
        await held_streams(port, count, process)
    if options.aborts:
        await aborted(server, port, options.aborts, process)


@contextmanager
def front(grpc_url: str, cores: set[int] | None) -> Iterator[tuple[int, int]]:
    """Port and process of a front, on these cores alone where some are given."""
    command = [
        sys.executable,
        "-m",
        "cosyvoice_front",
        f"front.grpc_url={grpc_url}",
        "front.port=0",
        "front.leave_s=0",
    ]
    with (
        tempfile.NamedTemporaryFile("w+") as log,
        subprocess.Popen(
            command, stderr=log, preexec_fn=partial(os.sched_setaffinity, 0, cores) if cores else None
        ) as process,
    ):
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


async def aborted(server: Server, port: int, count: int, front: int) -> None:
    """Connections that are closed at the first byte, or before it; then what is left of them."""
    parts = {"front": front, "gateway": gateway_process(), "tritonserver": server.session}
    members = processes.session_members(server.session)
    parts |= {process.model: process.pid for process in members if process.model}
    warm: dict[str, str] = {}
    for begun in range(0, count, AT_A_TIME):
        await asyncio.gather(*(hang_up(port, begun + number) for number in range(AT_A_TIME)))
        if begun == AT_A_TIME:  # caches are warm now
            await settled(server)
            warm = {name: facts(process) for name, process in parts.items()}
    took = await settled(server)
    print(f"\n{count} aborted, {AT_A_TIME} at a time; no utterance is left {took:.1f} s after the last\n")
    print(f"| process | after the first {2 * AT_A_TIME} | at the end |\n|---|---|---|")
    for name, process in parts.items():
        print(f"| {name} | {warm.get(name, '')} | {facts(process)} |", flush=True)
    await first_byte(port, "pcm")


def gateway_process() -> int:
    command = ("cosyvoice_runtime.gateway", "grpc")
    mine = (process for process in processes.living() if process.parent == os.getpid())
    return next(process.pid for process in mine if process.command[2:4] == command)


async def settled(server: Server) -> float:
    """Seconds until the server has no utterance in progress."""
    started = time.monotonic()
    while any(gauges(f"http://{server.metrics_url}/metrics", ["cosyvoice_inflight_utterances"]).values()):
        if time.monotonic() > started + SETTLE_S:
            raise SystemExit(f"utterances are still in progress after {SETTLE_S:g} s")
        await asyncio.sleep(0.05)
    return time.monotonic() - started


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
    head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
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


def facts(process: int) -> str:
    """Memory, threads, and files with sockets of a process."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    numbers = {key: int(re.search(rf"^{key}:\s+(\d+)", status, re.M)[1]) for key in ("VmRSS", "Threads")}  # type: ignore[index]
    files = len(os.listdir(f"/proc/{process}/fd"))
    return f"{numbers['VmRSS'] >> 10} MiB, {numbers['Threads']} threads, {files} files"


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
