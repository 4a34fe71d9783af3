#!/usr/bin/env python3
"""Send requests to a running server that are valid but for one thing, and see what it makes of them.

    python benchmarks/fuzz.py --requests 1000 --seed 0

Entry models and stages, over gRPC and HTTP; a server that is closed to clients answers for its stages that
they are unknown (start it with server.open_models=* to reach them). Reported are crashes (a connection that
is lost, a model that has to be started again), generic errors (INTERNAL, texts of Triton, tracebacks,
paths), hangs, and valid requests that are refused. Every request follows from the seed and its number:
``--only NUMBER`` sends that one. The exit status is 1 when anything was found.
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fuzzing.changes import changed_request
from fuzzing.request import Request
from fuzzing.sender import Answer, Sender

BUSY = re.compile(r"in progress|wait|at once|slots|come back|in \d")
"""Statuses of a server that has enough to do, which is no fault."""
CRASH = re.compile(r"being started|Socket closed|Connection reset|recvmsg|failed to connect")
GENERIC = re.compile(
    r"Traceback|File \"|shared.?memory region|/dev/shm|Stub|internal error|(?:/[\w.-]+){2}|\.(?:cc|py):\d"
)
ABOUT_THE_REQUEST = re.compile(r"is not accepted|is unknown|is restricted")
"""These repeat what the request said, whatever that was."""
REPORT_S = 30.0


@dataclass(frozen=True)
class Finding:
    kind: str
    number: int
    model: str
    protocol: str
    change: str
    status: str
    text: str


@dataclass
class Outcome:
    """Outcomes of all requests."""

    answers: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def note(self, number: int, request: Request, answer: Answer) -> None:
        self.answers[answer.status] += 1
        kind = fault(answer)
        if kind is not None:
            finding = Finding(
                kind,
                number,
                request.model[:40],
                request.protocol,
                request.change,
                answer.status,
                answer.text[:300],
            )
            self.findings.append(finding)
            print(f"{kind}: {finding}", flush=True)


def fault(answer: Answer) -> str | None:
    """The fault of an answer, if it has one."""
    if answer.status == "HANG":
        return "hang"
    if answer.status == "LOST" or CRASH.search(answer.text):
        return "crash"
    if answer.status in ("INTERNAL", "UNKNOWN") or (answer.status != "OK" and _generic(answer.text)):
        return "generic error"
    if answer.status == "UNAVAILABLE" and not BUSY.search(answer.text):
        return "refused without need"
    return None


def _generic(text: str) -> bool:
    """Whether a text tells of the server and not of the request."""
    found = GENERIC.search(text)
    return found is not None and not ABOUT_THE_REQUEST.search(text)


def request_of(seed: int, number: int) -> Request:
    return changed_request(random.Random(f"{seed}/{number}"))


async def fuzz(options: argparse.Namespace) -> Outcome:
    outcome = Outcome()
    numbers = iter([options.only] if options.only is not None else range(options.requests))
    async with Sender(options.url, options.http_url, options.timeout) as sender:
        reporting = asyncio.create_task(report(outcome))
        clients = [client(sender, options.seed, numbers, outcome) for _ in range(options.clients)]
        await asyncio.gather(*clients)
        reporting.cancel()
        if not await sender.live():
            outcome.note(-1, request_of(options.seed, 0), Answer("LOST", "the server is not there any more"))
    return outcome


async def client(sender: Sender, seed: int, numbers: Iterator[int], outcome: Outcome) -> None:
    for number in numbers:
        request = request_of(seed, number)
        outcome.note(number, request, await sender.send(request))


async def report(outcome: Outcome) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        print(f"{time.strftime('%H:%M:%S')}  {told(outcome)}", flush=True)


def told(outcome: Outcome) -> str:
    counts = ", ".join(f"{count} x {status}" for status, count in outcome.answers.most_common())
    return f"{outcome.answers.total()} requests: {counts}; {len(outcome.findings)} findings"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument("--only", type=int, help="number of the one request to send")
    parser.add_argument("--clients", type=int, default=8, help="at a time (default %(default)s)")
    parser.add_argument("--url", default="localhost:8001", help="gRPC (default %(default)s)")
    parser.add_argument("--http-url", default="localhost:8000", help="HTTP (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds, of one request")
    parser.add_argument("--output", type=Path, help="write the result as JSON")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    outcome = asyncio.run(fuzz(options))
    print(told(outcome))
    if options.output:
        result = {
            "requests": outcome.answers.total(),
            "seed": options.seed,
            "seconds": round(time.monotonic() - started),
            "answers": dict(outcome.answers.most_common()),
            "findings": [asdict(finding) for finding in outcome.findings],
        }
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
