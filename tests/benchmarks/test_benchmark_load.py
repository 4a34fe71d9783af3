"""Requests in time, with an asyncio loop but no server."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from cosyvoice_client import RefusedError, UnavailableError
from measuring.load import NO_AUDIO, NOT_SENT, Sample, closed_loop, due_times, measure, open_loop
from measuring.workload import Utterance, endless

TEXTS = [Utterance(str(number), f"text {number}") for number in range(5)]


class Server:
    """Answers when told to; knows how many requests are open."""

    def __init__(self):
        self.open = 0
        self.most = 0
        self.names = []
        self.answer = asyncio.Event()

    async def __call__(self, utterance, due_s, sample):
        self.names.append(utterance.name)
        self.open += 1
        self.most = max(self.most, self.open)
        await self.answer.wait()
        self.open -= 1
        return sample


def ignore(failed):
    pass


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("clients", "requests"), [(1, 7), (3, 7), (8, 3)])
def test_closed_loop_keeps_so_many_requests_open(clients, requests):
    async def run():
        server = Server()
        loop = closed_loop(server, itertools.cycle(TEXTS), clients, requests, 100.0, ignore)
        task = asyncio.create_task(loop)
        await turns(5)
        assert server.open == min(clients, requests)
        server.answer.set()
        return server, await task

    server, samples = asyncio.run(run())
    assert len(samples) == len(server.names) == requests
    assert server.most == min(clients, requests)


def test_user_who_was_refused_comes_back_when_told():
    async def run():
        told = iter([0.02, 0.01, None])
        asked = []

        async def speak(utterance, due_s, sample):
            asked.append(due_s)
            return replace(sample, retry_after_s=next(told))

        samples = await closed_loop(speak, itertools.cycle(TEXTS), 1, 3, 100.0, ignore)
        return asked, samples

    asked, samples = asyncio.run(run())
    assert len(samples) == 3
    assert asked[1] - asked[0] >= 0.02
    assert asked[2] - asked[1] >= 0.01


def test_closed_loop_does_not_wait_for_who_is_told_to_come_back_after_its_end():
    async def run():
        async def speak(utterance, due_s, sample):
            return replace(sample, retry_after_s=1000.0)

        return await closed_loop(speak, itertools.cycle(TEXTS), 3, 100, 900.0, ignore)

    assert len(asyncio.run(run())) == 3


def test_users_may_come_one_after_another():
    async def run():
        asked = []

        async def speak(utterance, due_s, sample):
            asked.append(sample.user)
            await asyncio.sleep(1)
            return sample

        await closed_loop(speak, itertools.cycle(TEXTS), 3, 3, 100.0, ignore, arrive_s=0.03)
        return asked

    assert asyncio.run(run()) == [0, 1, 2]


def test_user_who_listens_asks_again_when_all_has_been_heard():
    async def run():
        asked = []

        async def speak(utterance, due_s, sample):
            asked.append(due_s)
            sample.timeline.add(0.0, 0.02)
            sample.timeline.add(0.03, 0.01)  # a silence of 0.01
            return sample

        async def speak_long(utterance, due_s, sample):
            sample.timeline.add(0.0, 20.0)
            return sample

        await closed_loop(speak, itertools.cycle(TEXTS), 1, 2, 100.0, ignore, listen=True)
        first = await closed_loop(speak_long, itertools.cycle(TEXTS), 1, 9, 10.0, ignore, listen=True)
        return asked, first

    asked, of_short_run = asyncio.run(run())
    assert asked[1] - asked[0] >= 0.04
    assert len(of_short_run) == 1  # who has not heard all of it by the end asks no more


def test_closed_loop_asks_nothing_more_when_the_time_is_over():
    async def run():
        server = Server()
        server.answer.set()
        return await closed_loop(server, itertools.cycle(TEXTS), 2, 100, 0.0, ignore)

    assert asyncio.run(run()) == []


def test_open_loop_sends_whatever_became_of_those_before():
    async def run():
        server = Server()
        task = asyncio.create_task(open_loop(server, itertools.cycle(TEXTS), [0.0] * 6, 4, ignore))
        await turns(20)
        assert server.open == 4
        server.answer.set()
        return await task

    samples = asyncio.run(run())
    assert [sample.error for sample in samples].count(NOT_SENT) == 2
    assert len(samples) == 6


def test_due_times():
    assert due_times(4.0, 5, 100.0, "constant", 0) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert due_times(4.0, 100, 0.75, "constant", 0) == [0.0, 0.25, 0.5]
    random = due_times(10.0, 2000, 1e9, "poisson", 1)
    assert random == due_times(10.0, 2000, 1e9, "poisson", 1) != due_times(10.0, 2000, 1e9, "poisson", 2)
    assert random == sorted(random)
    assert 180 < random[-1] < 220


def test_every_round_speaks_every_text_in_its_own_order():
    names = [utterance.name for utterance in itertools.islice(endless(TEXTS, 3), 50)]
    rounds = [names[start : start + 5] for start in range(0, 50, 5)]
    assert all(sorted(one) == ["0", "1", "2", "3", "4"] for one in rounds)
    assert len(set(map(tuple, rounds))) > 1
    assert names == [utterance.name for utterance in itertools.islice(endless(TEXTS, 3), 50)]


@pytest.mark.parametrize(
    ("error", "kind"), [(UnavailableError("x"), "unavailable"), (RefusedError("x", "internal"), "internal")]
)
def test_failed_stream_is_counted_by_kind(error, kind):
    async def chunks():
        raise error
        yield

    assert asyncio.run(measure(chunks(), 0.0, Sample("a", 0.0))).error == kind


def test_stream_without_audio_is_an_error():
    async def chunks():
        return
        yield

    assert asyncio.run(measure(chunks(), 0.0, Sample("a", 0.0))).error == NO_AUDIO
