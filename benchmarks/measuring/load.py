"""Requests in time: a number at once, or a number per second."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cosyvoice_client import ClientError, Timeline
from measuring.workload import Utterance

NOT_SENT = "not_sent"
NO_AUDIO = "no_audio"


@dataclass(frozen=True)
class Sample:
    """One request as the client saw it. Times are in seconds.

    Attributes:
        utterance: name of what was spoken.
        started_s: when it was due, from the start of the run; all times below count from there.
        latency_s: until the end of the answer.
        timeline: audio as it arrived.
        finish_reasons: of its pieces of text.
        error: None, or what kind of error it ended with.
        retry_after_s: when a server that is full says to come back.
        user: who asked, of the users of a closed loop.
        onset_s: where its first audible sound is, in seconds of audio, if somebody looked.
    """

    utterance: str
    started_s: float
    latency_s: float = 0.0
    timeline: Timeline = field(default_factory=Timeline)
    finish_reasons: tuple[str, ...] = ()
    error: str | None = None
    retry_after_s: float | None = None
    user: int = 0
    onset_s: float | None = None


Speak = Callable[[Utterance, float, Sample], Awaitable[Sample]]
Report = Callable[[bool], None]
"""Called for every request that has ended, with whether it failed."""


async def measure(chunks: Any, due_s: float, sample: Sample) -> Sample:
    """Receive one utterance.

    Args:
        chunks: asynchronous generator of chunks.
        due_s: when it should have been sent, on the clock of ``time.perf_counter``.
    """
    reasons = []
    error = retry_after_s = None
    try:
        async for chunk in chunks:
            sample.timeline.add(time.perf_counter() - due_s, chunk.seconds)
            if chunk.finish_reason:
                reasons.append(chunk.finish_reason)
        if not sample.timeline.arrivals:
            error = NO_AUDIO
    except ClientError as failure:
        error = failure.kind
        retry_after_s = getattr(failure, "retry_after_s", None)
    latency_s = time.perf_counter() - due_s
    return replace(
        sample,
        latency_s=latency_s,
        finish_reasons=tuple(reasons),
        error=error,
        retry_after_s=retry_after_s,
    )


async def closed_loop(
    speak: Speak,
    utterances: Iterator[Utterance],
    clients: int,
    requests: int,
    seconds: float,
    report: Report,
    arrive_s: float = 0.0,
    listen: bool = False,
) -> list[Sample]:
    """``clients`` users who ask again as soon as they have their answer, or when they were told to.

    Ends after ``requests``, or when the seconds are over and the answers under way are there. Nobody waits
    for a time that lies after the end: a rate over such a wait would say that the server stood still.

    Args:
        arrive_s: seconds over which they come, one after another.
        listen: they play each answer to its end before they ask again.
    """
    start = time.perf_counter()
    samples: list[Sample] = []
    left = iter(range(requests))

    async def user(number: int) -> None:
        if arrive_s:
            await asyncio.sleep(arrive_s * number / clients)
        for _ in left:
            due_s = time.perf_counter()
            if due_s - start >= seconds:
                return
            utterance = next(utterances)
            sample = await speak(utterance, due_s, Sample(utterance.name, due_s - start, user=number))
            samples.append(sample)
            report(sample.error is not None)
            again_s = time.perf_counter() + (sample.retry_after_s or 0.0)
            if listen and sample.error is None and sample.timeline.heard_s is not None:
                again_s = due_s + sample.timeline.heard_s
            if again_s - start >= seconds:
                return
            await asyncio.sleep(again_s - time.perf_counter())

    await asyncio.gather(*(user(number) for number in range(clients)))
    return samples


async def open_loop(
    speak: Speak, utterances: Iterator[Utterance], due: list[float], max_in_flight: int, report: Report
) -> list[Sample]:
    """Requests at fixed times, whatever became of those before; latencies count from when they were due.

    Args:
        due: seconds from the start.
        max_in_flight: a request that would exceed it is not sent and counts as an error.
    """
    start = time.perf_counter()
    in_flight: set[asyncio.Task[Sample]] = set()
    samples: list[Sample] = []

    def ended(task: asyncio.Task[Sample]) -> None:
        in_flight.discard(task)
        if not task.cancelled() and task.exception() is None:
            sample = task.result()
            samples.append(sample)
            report(sample.error is not None)

    tasks = []
    for due_s in due:
        await asyncio.sleep(max(0.0, start + due_s - time.perf_counter()))
        utterance = next(utterances)
        sample = Sample(utterance.name, due_s)
        if len(in_flight) >= max_in_flight:
            samples.append(replace(sample, error=NOT_SENT))
            report(True)
            continue
        task = asyncio.ensure_future(speak(utterance, start + due_s, sample))
        task.add_done_callback(ended)
        in_flight.add(task)
        tasks.append(task)
    await asyncio.gather(*tasks)
    return samples


def due_times(rate: float, requests: int, seconds: float, arrivals: str, seed: int) -> list[float]:
    """When requests are due, in seconds: ``constant`` distances, or those of a ``poisson`` process."""
    chance = random.Random(seed)
    times: list[float] = []
    due_s = 0.0
    while len(times) < requests and due_s < seconds:
        times.append(due_s)
        due_s += 1 / rate if arrivals == "constant" else chance.expovariate(rate)
    return times


class LagMeter:
    """How late this process is in reacting: large values mean that it distorts what it measures."""

    INTERVAL_S = 0.01

    def __init__(self) -> None:
        self.lags_s: list[float] = []

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.perf_counter() + self.INTERVAL_S
            await asyncio.sleep(self.INTERVAL_S)
            self.lags_s.append(time.perf_counter() - due)
