#!/usr/bin/env python3
"""Keep a running server busy with clients of every kind, and see whether anything is lost or left behind.

    python benchmarks/soak.py --clients 8 --minutes 10
    python benchmarks/soak.py --clients 8 --minutes 120 --kill-minutes 5

Each client asks again as soon as it is done: most listen to the end, some leave after a few chunks, some at
once, some send what must be refused, some bring a voice that nobody has heard. A client that is told to come
back does. A text heard with one seed has to sound the same whenever it is heard again, but for a few
(--read-otherwise) that the rounding of another batch makes the speech LM read otherwise: in half precision
many, since a draw between two speech tokens that are as likely may depend on the last bit of a score. So some
bring speech tokens of their own to token2wav, if the server opens it (server.open_models=*), whose audio has
to be what it was before the crowd came, with nobody else there. Where token2wav computes in float32 that is
so for any weights. In half precision another batch moves F0 by its rounding, and with it the phase of the
source: nothing that a listener of a trained vocoder hears, but one with random weights makes other spectra of
it (--given-within).

With --kill-minutes one of the server's processes is killed every few minutes, each model's in turn; the
server has to be on this machine. Who is cut off then has to be told UNAVAILABLE at once, and a minute later
clients have to be served again.

A line a minute and one at the end tell what happened, and what the server's processes hold. At the end the
gauges of work in progress must come back to zero, and memory, threads, descriptors and shared memory must be
those of the second third of the run. The exit status is 1 when they are not, or when any request failed that
should not have.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict

import numpy as np

from cosyvoice_client import AsyncSpeechClient, ClientError, RefusedError, SpeechRequest, UnavailableError
from cosyvoice_client.reference import SERVER_RATE, Reference
from cosyvoice_runtime.arrays import Floats
from measuring.given_tokens import GivenTokens, distance_db
from measuring.sentences import SENTENCES
from measuring.server_processes import Holding, ServerProcesses, growths
from measuring.work_left import work_left
from measuring.workload import add_instruction

SHARES = {
    "listen": 52,
    "given tokens": 5,
    "leave": 25,
    "leave at once": 10,
    "bad input": 5,
    "new voice": 3,
}
SEEDS = 4
MOST_READ_OTHERWISE = 0.05
"""Share of what is listened to."""
GIVEN, GIVEN_WITHIN_DB = 8, 1.0
"""Utterances of given tokens, and how far their spectra may be from those heard alone."""
SAME = 2e-3
"""Greatest difference between two samples that are the same but for rounding; full scale is 1."""
MOST_CHUNKS_HEARD, LONGEST_STAY_S = 3, 0.5
REFERENCE_S = 2.0
TOLD_S = 5.0
"""Longest time from a process's death until those whom it spoke to are told."""
BACK_S = 60.0
"""Longest time from a process's death until the server serves again."""
SETTLE_S = 10.0
REPORT_S = 60.0
PAUSE_S = 0.5


class Soak:
    """Clients of one server, and what became of their requests.

    Args:
        most_read_otherwise: share of what is listened to that may sound otherwise than before.
        given_within_db: distance of given tokens from what they were alone.
    """

    def __init__(
        self,
        client: AsyncSpeechClient,
        given: GivenTokens,
        most_read_otherwise: float = MOST_READ_OTHERWISE,
        given_within_db: float = GIVEN_WITHIN_DB,
    ) -> None:
        self._client = client
        self._given = given
        self._given_alone: list[Floats] = []
        self._shares = dict(SHARES)
        self._most_read_otherwise = most_read_otherwise
        self._given_within_db = given_within_db
        self._heard: dict[SpeechRequest, Floats] = {}
        self._killed_s = self._served_s = -np.inf
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self.longest_outage_s = self.longest_cut_s = self.farthest_db = 0.0
        self._fates: dict[str, Callable[[SpeechRequest, random.Random], Awaitable[None]]] = {
            "listen": self._listen,
            "given tokens": self._give_tokens,
            "leave": self._leave,
            "leave at once": self._leave_at_once,
            "bad input": self._send_bad_input,
            "new voice": self._bring_a_voice,
        }

    async def alone(self) -> None:
        """Hear what will be compared, before anybody else comes."""
        if not self._shares.get("given tokens"):
            return
        try:
            self._given_alone = [await self._given.speak(number) for number in range(GIVEN)]
        except RefusedError as error:
            print(f"nobody brings speech tokens: {error}", file=sys.stderr)
            self._shares.pop("given tokens")

    async def client(self, chance: random.Random, until: float, texts: Sequence[str]) -> None:
        """One client after another of a random kind."""
        while time.monotonic() < until:
            [fate] = chance.choices(list(self._shares), list(self._shares.values()))
            request = SpeechRequest(chance.choice(texts), seed=chance.randrange(SEEDS))
            asked_s = time.monotonic()
            try:
                await self._fates[fate](request, chance)
                self.outcomes[fate] += 1
            except UnavailableError as error:
                await self._come_back(fate, error, asked_s)
            except ClientError as error:
                if fate == "given tokens" and self._after_death():  # Triton's own word for it is INTERNAL
                    await self._come_back(fate, UnavailableError(str(error)), asked_s)
                    continue
                self.failures.append(f"{fate}: {error}")
                await asyncio.sleep(PAUSE_S)

    async def killer(self, server: ServerProcesses, every_s: float, until: float) -> None:
        """Kill each model's process in turn."""
        for model in itertools.cycle(server.models()):
            if time.monotonic() + every_s + BACK_S > until:
                return
            await asyncio.sleep(every_s)
            self._killed_s = time.monotonic()
            server.kill(model)
            print(f"{time.strftime('%H:%M:%S')}  killed {model}", flush=True)
            self.outcomes["killed"] += 1
            await self._back(model, until)

    def read_otherwise(self) -> list[str]:
        """The failed check if too many requests were not repeated by their seed."""
        otherwise, heard = self.outcomes["read otherwise"], self.outcomes["listen"]
        if otherwise <= self._most_read_otherwise * heard:
            return []
        return [f"{otherwise} of {heard} requests did not sound as before with the same seed"]

    async def _back(self, model: str, until: float) -> None:
        """Wait until somebody who asked after the death has been served."""
        while self._served_s < self._killed_s and time.monotonic() < until:
            await asyncio.sleep(PAUSE_S)
        outage_s = time.monotonic() - self._killed_s
        self.longest_outage_s = max(self.longest_outage_s, outage_s)
        if outage_s > BACK_S:
            self.failures.append(f"nobody was served for {outage_s:.0f} s after {model} was killed")

    async def _come_back(self, fate: str, error: UnavailableError, asked_s: float) -> None:
        if asked_s < self._killed_s and error.retry_after_s is None:
            self._told(time.monotonic() - self._killed_s)
        if error.retry_after_s is not None:
            self.outcomes["told to come back"] += 1
        elif self._after_death():
            self.outcomes["cut off by a death"] += 1
        else:
            self.failures.append(f"{fate}: {error}")
        await asyncio.sleep(error.retry_after_s or PAUSE_S)

    def _after_death(self) -> bool:
        return self._served_s < self._killed_s or time.monotonic() < self._killed_s + BACK_S

    def _told(self, after_s: float) -> None:
        """Note somebody who was cut off by a death."""
        self.longest_cut_s = max(self.longest_cut_s, after_s)
        if after_s > TOLD_S:
            self.failures.append(f"somebody was told of a death more than {TOLD_S:g} s later")

    async def _speak(self, request: SpeechRequest) -> Floats:
        asked_s = time.monotonic()
        async with aclosing(self._client.speak(request)) as chunks:
            samples = np.concatenate([chunk.samples async for chunk in chunks] or [np.empty(0, np.float32)])
        self._served_s = max(self._served_s, asked_s)
        return samples

    async def _listen(self, request: SpeechRequest, chance: random.Random) -> None:  # noqa: ARG002
        samples = await self._speak(request)
        expected = self._heard.setdefault(request, samples)
        if samples is expected:
            return
        if samples.shape != expected.shape or np.abs(samples - expected).max(initial=0.0) > SAME:
            self.outcomes["read otherwise"] += 1
        else:
            same_bits = np.array_equal(samples, expected)
            self.outcomes["same bits" if same_bits else "same but for rounding"] += 1

    async def _give_tokens(self, request: SpeechRequest, chance: random.Random) -> None:  # noqa: ARG002
        number = chance.randrange(GIVEN)
        distance = distance_db(await self._given.speak(number), self._given_alone[number])
        self.farthest_db = max(self.farthest_db, distance)
        if distance > self._given_within_db:
            self.failures.append(
                f"given tokens {number} sound otherwise than alone, by over {self._given_within_db} dB"
            )

    async def _leave(self, request: SpeechRequest, chance: random.Random) -> None:
        left = chance.randint(1, MOST_CHUNKS_HEARD)
        async with aclosing(self._client.speak(request)) as chunks:
            async for _ in chunks:
                left -= 1
                if not left:
                    return

    async def _leave_at_once(self, request: SpeechRequest, chance: random.Random) -> None:
        try:
            async with asyncio.timeout(chance.uniform(0, LONGEST_STAY_S)):
                await self._speak(request)
        except TimeoutError:
            return

    async def _send_bad_input(self, request: SpeechRequest, chance: random.Random) -> None:
        bad = chance.choice([SpeechRequest("  "), SpeechRequest(request.text, voice="nobody's")])
        try:
            await self._speak(bad)
        except RefusedError:
            return
        self.failures.append(f"not refused: {bad}")

    async def _bring_a_voice(self, request: SpeechRequest, chance: random.Random) -> None:
        await self._speak(SpeechRequest(request.text, made_voice(chance), cross_lingual=True))


def made_voice(chance: random.Random) -> Reference:
    """A hum of a pitch that nobody else has."""
    seconds = np.arange(int(REFERENCE_S * SERVER_RATE)) / SERVER_RATE
    pitch_hz = chance.uniform(90, 250)
    hum = sum(np.sin(2 * np.pi * pitch_hz * harmonic * seconds) / harmonic for harmonic in range(1, 9))
    return Reference((0.2 * hum * (1 + np.sin(8 * np.pi * seconds))).astype(np.float32))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", help="gRPC port (default %(default)s)")
    parser.add_argument("--metrics", default="http://localhost:8003/metrics", help="page with all metrics")
    parser.add_argument("--clients", type=int, default=8, help="at a time (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=10, help="default %(default)s")
    parser.add_argument("--kill-minutes", type=float, default=0, help="between two deaths; default none")
    parser.add_argument("--longest", type=int, default=1000, help="characters of a text (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the clients' fates")
    parser.add_argument(
        "--read-otherwise",
        type=float,
        default=MOST_READ_OTHERWISE,
        metavar="SHARE",
        help="that may sound otherwise when heard again; 1 for a speech LM in half precision (%(default)s)",
    )
    parser.add_argument(
        "--given-within",
        type=float,
        default=GIVEN_WITHIN_DB,
        metavar="DB",
        help="that spectra of given tokens may be from those alone; 10 for random weights in half precision "
        "(%(default)s)",
    )
    add_instruction(parser)
    options = parser.parse_args(arguments)
    least = options.kill_minutes + BACK_S / 60
    if options.kill_minutes and options.minutes <= least:
        parser.error(f"--minutes {options.minutes:g}: nobody would be killed; more than {least:g}")
    failures = asyncio.run(soak(options))
    for failure, count in Counter(failures).items():
        print(f"failed: {failure}" + (f" ({count} times)" if count > 1 else ""), file=sys.stderr)
    return 1 if failures else 0


async def soak(options: argparse.Namespace) -> list[str]:
    """The checks that failed."""
    sentences = [text for text in SENTENCES.values() if len(text) <= options.longest]
    texts = [options.instruction + text for text in sentences]
    server = server_here(options)
    held: list[Holding] = []
    async with AsyncSpeechClient(options.url) as client, GivenTokens(options.url) as given:
        everybody = Soak(client, given, options.read_otherwise, options.given_within)
        try:
            await everybody.alone()
        except ClientError as error:
            return [f"given tokens: {error}"]
        until = time.monotonic() + 60 * options.minutes
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.clients):
                chance = random.Random(options.seed * options.clients + number)
                tasks.create_task(everybody.client(chance, until, texts))
            tasks.create_task(report(everybody, server, held, until))
            if server is not None and options.kill_minutes:
                tasks.create_task(everybody.killer(server, 60 * options.kill_minutes, until))
        tell(everybody)
    left = await work_left(options.metrics, SETTLE_S)
    failures = everybody.failures + everybody.read_otherwise() + growths(held)
    return failures + [f"{count:g} left in {name}" for name, count in left.items()]


def server_here(options: argparse.Namespace) -> ServerProcesses | None:
    """The server's processes, if it is on this machine.

    Raises:
        SystemExit: it is not, and one was to be killed.
    """
    try:
        return ServerProcesses(int(options.url.rpartition(":")[2]))
    except LookupError as error:
        if options.kill_minutes:
            raise SystemExit(str(error)) from None
        print(f"{error}: what it holds is not looked at", file=sys.stderr)
        return None


async def report(everybody: Soak, server: ServerProcesses | None, held: list[Holding], until: float) -> None:
    while until - time.monotonic() > REPORT_S:
        await asyncio.sleep(REPORT_S)
        tell(everybody)
        if server is not None:
            held.append(await asyncio.to_thread(server.holding))
            numbers = ", ".join(f"{name} {value:g}" for name, value in asdict(held[-1]).items())
            print(f"          {numbers}", flush=True)


def tell(everybody: Soak) -> None:
    counts = ", ".join(f"{count} x {name}" for name, count in sorted(everybody.outcomes.items()))
    outage = f", longest outage {everybody.longest_outage_s:.0f} s" if everybody.longest_outage_s else ""
    if everybody.outcomes["given tokens"]:
        counts += f", given tokens within {everybody.farthest_db:.2g} dB"
    if everybody.longest_cut_s:
        outage += f", cut off within {everybody.longest_cut_s:.2f} s of a death"
    print(f"{time.strftime('%H:%M:%S')}  {counts}, {len(everybody.failures)} failures{outage}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
