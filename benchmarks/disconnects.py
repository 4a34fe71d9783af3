#!/usr/bin/env python3
"""Clients that leave at random moments, while two listen to the end and compare what they hear.

    python benchmarks/disconnects.py --count 10000 --seed 1 --output disconnects.json

The listeners first hear their sentences alone; then, as long as others come and leave, they hear the same
sentences with the same seeds, again and again, and whatever they hear is compared sample by sample. The
others leave before their first chunk, after some chunks, by closing their whole gRPC channel, or their HTTP
connection. At the end the gauges of work in progress must be back at zero. Processes, threads, descriptors
and shared memory of the server, which must run on this machine, are counted before and after. The exit status
is 1 when a listener was refused, heard something else, or work was left. So that nobody is refused, the
server must have room for all: ``cosyvoice2.max_inflight_utterances=64``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tritonclient.http

from cosyvoice_client import AsyncSpeechClient, ClientError, SpeechRequest, UnavailableError
from cosyvoice_client.request import OFFLINE_MODEL, infer_inputs
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.process.processes import living
from measuring.machine import provenance
from measuring.sentences import SENTENCES
from measuring.work_left import work_left
from measuring.workload import add_instruction

HEARD = ("en_words", "en_short")
SPOKEN = ("en_short", "en_number", "en_question", "en_long")
"""Text of the others, long enough to leave in the middle."""
SHARES = {
    "before the first chunk": 30,
    "after some chunks": 30,
    "gRPC channel closed": 30,
    "HTTP connection closed": 10,
}
TOLERANCE = 1e-3
"""Of full scale: chunks of several utterances are computed together, which rounds otherwise."""
MOST_READ_OTHERWISE = 0.05
"""Share of what is heard: a draw between two tokens may depend on the last bit of a score."""
LONGEST_STAY_S = 3.0
MOST_CHUNKS_HEARD = 3
SETTLE_S = 30.0
REPORT_S = 60.0
RETRY_S = 1.0


@dataclass(frozen=True)
class Holdings:
    """Threads, files and memory that the processes of a server hold.

    Attributes:
        server: process id of tritonserver.
        shared_memory: regions.
        resident_mib: memory, what processes share counted in each.
    """

    server: int
    processes: int
    threads: int
    descriptors: int
    shared_memory: int
    resident_mib: int

    @classmethod
    def of(cls, server: int | None) -> Holdings:
        """The processes of the tritonserver with this process id, or of the only one on this machine."""
        servers = [each for each in living() if Path(each.command[0]).name == "tritonserver"]
        found = [each for each in servers if server in (None, each.pid)]
        if len(found) != 1:
            raise SystemExit(f"--server: one of {[each.pid for each in servers]} is expected")
        members = [Path(f"/proc/{each.pid}") for each in living() if each.session == found[0].session]
        prefix = re.findall(r"shm-region-prefix-name=(\w+)", " ".join(found[0].command))[0]
        return cls(
            found[0].pid,
            len(members),
            sum(len(list((folder / "task").iterdir())) for folder in members),
            sum(len(list((folder / "fd").iterdir())) for folder in members),
            len(list(Path("/dev/shm").glob(f"{prefix}*"))),
            sum(_resident_kib(folder) for folder in members) // 1024,
        )


def _resident_kib(process: Path) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())
    return int(found[1]) if found else 0


class Disconnects:
    """Clients of one server, and what became of them."""

    def __init__(self, url: str, http_url: str, instruction: str = "") -> None:
        self._url = url
        self._texts = {name: instruction + text for name, text in SENTENCES.items()}
        self._http_host, self._http_port = http_url.rsplit(":", 1)
        self._others = AsyncSpeechClient(url)
        self.left: Counter[str] = Counter()
        self.heard: Counter[str] = Counter()
        self.largest_difference = 0.0
        self.failures: list[str] = []
        self._fates: dict[str, Callable[[SpeechRequest, random.Random], Awaitable[None]]] = {
            "before the first chunk": self._leave_at_once,
            "after some chunks": self._leave_midway,
            "gRPC channel closed": self._close_channel,
            "HTTP connection closed": self._close_http,
        }

    async def leave(self, chance: random.Random) -> None:
        """One client that leaves."""
        [fate] = chance.choices(list(SHARES), list(SHARES.values()))
        request = SpeechRequest(self._texts[chance.choice(SPOKEN)], seed=chance.randrange(1000))
        try:
            await self._fates[fate](request, chance)
            self.left[fate] += 1
        except (ClientError, OSError) as error:
            self.left[f"refused: {type(error).__name__}"] += 1
            await asyncio.sleep(RETRY_S)

    async def hear_alone(self, seed: int) -> list[tuple[SpeechRequest, Floats]]:
        """The sentences of a listener, and how they sound when nothing else is spoken."""
        requests = [SpeechRequest(self._texts[name], seed=seed) for name in HEARD]
        return [(request, await self._audio(self._others, request)) for request in requests]

    async def listen(self, until: asyncio.Event, alone: list[tuple[SpeechRequest, Floats]]) -> None:
        """Hear the sentences over and over, and compare them with the first time."""
        async with AsyncSpeechClient(self._url) as client:
            over = False
            while not over:
                over = until.is_set()  # the last round hears what those who left at the end have done
                for request, expected in alone:
                    await self._compare(client, request, expected)

    async def close(self) -> None:
        await self._others.close()

    async def _compare(self, client: AsyncSpeechClient, request: SpeechRequest, expected: Floats) -> None:
        try:
            audio = await self._audio(client, request)
        except ClientError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            if isinstance(error, UnavailableError):
                await asyncio.sleep(RETRY_S)
            return
        if audio.shape != expected.shape:
            self.heard["read otherwise"] += 1
            return
        difference = float(np.abs(audio - expected).max())
        self.largest_difference = max(self.largest_difference, difference)
        self.heard["bit-equal" if difference == 0 else "equal to rounding"] += 1
        if difference > TOLERANCE:
            self.failures.append(f"{request.text!r} differs by {difference:g} from when it was heard alone")

    async def _audio(self, client: AsyncSpeechClient, request: SpeechRequest) -> Floats:
        async with aclosing(client.speak(request)) as chunks:
            return np.concatenate([chunk.samples async for chunk in chunks])

    async def _leave_at_once(self, request: SpeechRequest, chance: random.Random) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0, 0.2)):
                await self._audio(self._others, request)

    async def _leave_midway(self, request: SpeechRequest, chance: random.Random) -> None:
        left = chance.randint(1, MOST_CHUNKS_HEARD)
        async with aclosing(self._others.speak(request)) as chunks:
            async for _ in chunks:
                left -= 1
                if not left:
                    await asyncio.sleep(chance.uniform(0, 0.2))
                    return

    async def _close_channel(self, request: SpeechRequest, chance: random.Random) -> None:
        client = AsyncSpeechClient(self._url)
        listening = asyncio.create_task(self._audio(client, request))
        await asyncio.wait([listening], timeout=chance.uniform(0, LONGEST_STAY_S))
        await client.close()
        await asyncio.wait([listening], timeout=RETRY_S)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    async def _close_http(self, request: SpeechRequest, chance: random.Random) -> None:
        inputs = infer_inputs(tritonclient.http, request.tensors())
        body, json_bytes = tritonclient.http.InferenceServerClient.generate_request_body(inputs)
        lines = (
            f"POST /v2/models/{OFFLINE_MODEL}/infer HTTP/1.1",
            f"Host: {self._http_host}",
            f"Content-Length: {len(body)}",
            f"Inference-Header-Content-Length: {json_bytes}",
        )
        reader, writer = await asyncio.open_connection(self._http_host, int(self._http_port))
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0, LONGEST_STAY_S)):
                await reader.read()
        writer.transport.abort()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", help="gRPC port (default %(default)s)")
    parser.add_argument("--http", default="localhost:8000", help="HTTP port (default %(default)s)")
    parser.add_argument("--metrics", default="http://localhost:8003/metrics", help="page with all metrics")
    parser.add_argument("--count", type=int, default=10_000, help="clients that leave (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=600, help="end after this time with fewer")
    parser.add_argument("--clients", type=int, default=8, help="of those at a time (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of who leaves how and when")
    parser.add_argument("--server", type=int, metavar="PID", help="tritonserver, where several run")
    parser.add_argument("--output", type=Path, help="where the figures are written as JSON")
    add_instruction(parser)
    options = parser.parse_args(arguments)
    figures = asyncio.run(disconnects(options))
    print(json.dumps(figures, indent=2))
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if figures["failures"] else 0


async def disconnects(options: argparse.Namespace) -> dict[str, object]:
    """The figures."""
    everybody, over = Disconnects(options.url, options.http, options.instruction), asyncio.Event()
    alone = [await everybody.hear_alone(seed) for seed in (0, 1)]
    numbers, started = iter(range(options.count)), time.monotonic()

    async def leave() -> None:
        for number in numbers:
            if time.monotonic() - started > 60 * options.minutes:
                return
            await everybody.leave(random.Random(options.seed * options.count + number))

    async with asyncio.TaskGroup() as tasks:
        listening = [tasks.create_task(everybody.listen(over, heard)) for heard in alone]
        before = await asyncio.to_thread(Holdings.of, options.server)
        reporting = tasks.create_task(report(everybody))
        await asyncio.gather(*(leave() for _ in range(options.clients)))
        over.set()
        await asyncio.wait(listening)
        reporting.cancel()
    seconds = time.monotonic() - started
    await everybody.close()
    failures = failures_of(everybody, await work_left(options.metrics, SETTLE_S))
    return {
        **provenance(),
        "command": f"python benchmarks/disconnects.py --count {options.count} --minutes {options.minutes:g} "
        f"--clients {options.clients} --seed {options.seed}",
        "seconds": round(seconds),
        "left": everybody.left,
        "heard": everybody.heard,
        "largest_difference": everybody.largest_difference,
        "before": asdict(before),
        "after": asdict(await asyncio.to_thread(Holdings.of, options.server)),
        "failures": failures,
    }


def failures_of(everybody: Disconnects, left: dict[str, float]) -> list[str]:
    """Whatever must not happen, in words."""
    failures = list(everybody.failures)
    otherwise, heard = everybody.heard["read otherwise"], everybody.heard.total()
    if otherwise > MOST_READ_OTHERWISE * heard:
        failures.append(f"{otherwise} of {heard} sentences did not sound as long as before")
    return failures + [f"{count:g} left in {name}" for name, count in left.items()]


async def report(everybody: Disconnects) -> None:
    """A line a minute."""
    while True:
        await asyncio.sleep(REPORT_S)
        left, heard = everybody.left.total(), dict(everybody.heard)
        print(f"{time.strftime('%H:%M:%S')}  {left} left, heard {heard}, {len(everybody.failures)} failures",
              file=sys.stderr, flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
