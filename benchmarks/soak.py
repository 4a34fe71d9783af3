#!/usr/bin/env python3
"""Keep a running server busy with clients of every kind, and see whether anything is lost or left behind.

    python benchmarks/soak.py --clients 8 --minutes 10

Each client asks again as soon as it is done: most listen to the end, some leave after a few chunks, some at
once, some send what must be refused. A text heard with one seed has to sound as long whenever it is heard
again, but for a few that the rounding of another batch makes the speech LM read otherwise. A line a minute
and one at the end tell what happened. Then the server's gauges of work in progress must come back to zero;
the exit status is 1 when they don't, or when any request failed that should not have.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from cosyvoice_client import AsyncSpeechClient, ClientError, RefusedError, SpeechRequest
from measuring.sentences import SENTENCES

IN_PROGRESS = (
    "cosyvoice_inflight_utterances",
    "cosyvoice_lm_active_slots",
    "cosyvoice_lm_waiting_requests",
    "cosyvoice_token2wav_utterances",
    "cosyvoice_token2wav_waiting",
)
SHARES = {"listen": 60, "leave": 25, "leave at once": 10, "bad input": 5}
SEEDS = 4
MOST_READ_OTHERWISE = 0.05
"""Share of what is listened to: a draw between two tokens may depend on the last bit of a score."""
MOST_CHUNKS_HEARD, LONGEST_STAY_S = 3, 0.5
SETTLE_S = 10.0
REPORT_S = 60.0


class Soak:
    """Clients of one server, and what became of their requests."""

    def __init__(self, client: AsyncSpeechClient) -> None:
        self._client = client
        self._samples_of: dict[SpeechRequest, int] = {}
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self._fates: dict[str, Callable[[SpeechRequest], Awaitable[None]]] = {
            "listen": self._listen,
            "leave": self._leave,
            "leave at once": self._leave_at_once,
            "bad input": self._send_bad_input,
        }

    async def client(self, chance: random.Random, until: float) -> None:
        """One client after another of a random kind."""
        while time.monotonic() < until:
            [fate] = chance.choices(list(SHARES), list(SHARES.values()))
            request = SpeechRequest(chance.choice(list(SENTENCES.values())), seed=chance.randrange(SEEDS))
            try:
                await self._fates[fate](request)
                self.outcomes[fate] += 1
            except ClientError as error:
                self.failures.append(f"{fate}: {error}")

    async def _listen(self, request: SpeechRequest) -> None:
        samples = 0
        async with aclosing(self._client.speak(request)) as chunks:
            async for chunk in chunks:
                samples += len(chunk.samples)
        expected = self._samples_of.setdefault(request, samples)
        if samples != expected:
            self.outcomes["read otherwise"] += 1

    def read_otherwise(self) -> list[str]:
        """What failed if too many requests were not repeated by their seed."""
        otherwise, heard = self.outcomes["read otherwise"], self.outcomes["listen"]
        if otherwise <= MOST_READ_OTHERWISE * heard:
            return []
        return [f"{otherwise} of {heard} requests did not sound as long as before with the same seed"]

    async def _leave(self, request: SpeechRequest) -> None:
        left = random.randint(1, MOST_CHUNKS_HEARD)
        async with aclosing(self._client.speak(request)) as chunks:
            async for _ in chunks:
                left -= 1
                if not left:
                    return

    async def _leave_at_once(self, request: SpeechRequest) -> None:
        try:
            async with asyncio.timeout(random.uniform(0, LONGEST_STAY_S)):
                await self._listen(request)
        except TimeoutError:
            return

    async def _send_bad_input(self, request: SpeechRequest) -> None:
        bad = random.choice([SpeechRequest("  "), SpeechRequest(request.text, voice="nobody's")])
        try:
            await self._listen(bad)
        except RefusedError:
            return
        self.failures.append(f"not refused: {bad}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", help="gRPC port (default %(default)s)")
    parser.add_argument("--metrics", default="http://localhost:8003/metrics", help="page with all metrics")
    parser.add_argument("--clients", type=int, default=8, help="at a time (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=10, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the clients' fates")
    options = parser.parse_args(arguments)
    failures = asyncio.run(soak(options))
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


async def soak(options: argparse.Namespace) -> list[str]:
    """What failed."""
    until = time.monotonic() + 60 * options.minutes
    async with AsyncSpeechClient(options.url) as client:
        all_clients = Soak(client)
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.clients):
                chance = random.Random(options.seed * options.clients + number)
                tasks.create_task(all_clients.client(chance, until))
            tasks.create_task(report(all_clients, until))
        tell(all_clients)
    left = await work_left(options.metrics)
    failures = all_clients.failures + all_clients.read_otherwise()
    return failures + [f"{count:g} left in {name}" for name, count in left.items()]


async def report(all_clients: Soak, until: float) -> None:
    while until - time.monotonic() > REPORT_S:
        await asyncio.sleep(REPORT_S)
        tell(all_clients)


def tell(all_clients: Soak) -> None:
    counts = ", ".join(f"{count} x {name}" for name, count in sorted(all_clients.outcomes.items()))
    print(f"{time.strftime('%H:%M:%S')}  {counts}, {len(all_clients.failures)} failures", flush=True)


async def work_left(page: str) -> dict[str, float]:
    """The gauges of work in progress that don't come back to zero."""
    until = time.monotonic() + SETTLE_S
    while (left := await asyncio.to_thread(_in_progress, page)) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    return left


def _in_progress(page: str) -> dict[str, float]:
    with urllib.request.urlopen(page, timeout=10) as response:
        text = response.read().decode()
    found = re.findall(rf"^((?:{'|'.join(IN_PROGRESS)})\{{.*\}}) (\S+)$", text, re.MULTILINE)
    missing = [name for name in IN_PROGRESS if name not in text]
    if missing:
        raise SystemExit(f"{page} has no {', '.join(missing)}")
    return {name: float(value) for name, value in found if float(value)}


if __name__ == "__main__":
    sys.exit(main())
