"""Clients who leave soon, many of them and by all doors, cost those who stay next to nothing."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress

import numpy as np
import pytest
from aiohttp import ClientSession
from speaking import TEXT, TIMEOUT_S, assert_same_audio, spoken

from cosyvoice_client import AsyncSpeechClient, SpeechRequest

LEAVERS = 150
LEAVERS_AT_A_TIME = 12
LONGEST_STAY_S = 0.2
MOST_WORK = 0.2
"""Of what was asked for by those who left: they left before a fifth of it."""
LONG = SpeechRequest("This is a rather long sentence, so that there is time. " * 10, seed=1)
TENSOR = {"name": "target_text", "datatype": "BYTES", "shape": [1, 1], "data": [LONG.text]}
HTTP_REQUESTS = [
    ("cosyvoice2/generate_stream", {"target_text": LONG.text}),
    ("cosyvoice2_offline/infer", {"inputs": [TENSOR]}),
]
GOOD = [SpeechRequest(TEXT, seed=seed) for seed in (2, 3)]


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory):
    texts = {"cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"), "token2wav.ode_steps": 10}
    with serve_all(**texts) as server:  # none that has spoken before somebody leaves
        yield server


class Work:
    """What the speech LM and token2wav have done so far: tokens, and rows of turns."""

    def __init__(self, server, metric) -> None:
        self._server = server
        self._metric = metric
        self.counted = self._count()

    def since(self) -> np.ndarray:
        """What was done since the last look."""
        before, self.counted = self.counted, self._count()
        return self.counted - before

    def _count(self) -> np.ndarray:
        names = ("cosyvoice_lm_tokens_total", "cosyvoice_token2wav_turn_rows_sum")
        return np.array([self._metric(self._server, name) for name in names])


async def leave(client: AsyncSpeechClient, chance: random.Random) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.uniform(0, LONGEST_STAY_S)), aclosing(client.speak(LONG)) as chunks:
            async for _ in chunks:
                pass


async def hang_up(client: ClientSession, url: str, chance: random.Random) -> None:
    path, body = chance.choice(HTTP_REQUESTS)
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.uniform(0, LONGEST_STAY_S)):
            async with client.post(f"http://{url}/v2/models/{path}", json=body) as response:
                await response.read()


async def flood(url: str, http_url: str, request_of_the_good: list[SpeechRequest]) -> list[list[np.ndarray]]:
    """What each good client heard, again and again while the others come and leave."""
    leavers, over = iter(range(LEAVERS)), asyncio.Event()

    async def leave_often(client: AsyncSpeechClient) -> None:
        async with ClientSession() as http:
            for number in leavers:
                chance = random.Random(number)
                await (hang_up(http, http_url, chance) if number % 3 == 0 else leave(client, chance))

    async def listen(request: SpeechRequest) -> list[np.ndarray]:
        audios = []
        async with AsyncSpeechClient(url, timeout_s=TIMEOUT_S) as client:
            while not audios or not over.is_set():
                async with aclosing(client.speak(request)) as chunks:
                    audios.append(np.concatenate([chunk.samples async for chunk in chunks]))
        return audios

    async with AsyncSpeechClient(url, timeout_s=TIMEOUT_S) as client:
        listening = [asyncio.create_task(listen(request)) for request in request_of_the_good]
        await asyncio.gather(*(leave_often(client) for _ in range(LEAVERS_AT_A_TIME)))
        over.set()
        return await asyncio.gather(*listening)


def idle(server, metric) -> bool:
    gauges = ("inflight_utterances", "lm_active_slots", "lm_waiting_requests", "token2wav_utterances")
    return not any(metric(server, f"cosyvoice_{gauge}") for gauge in gauges)


def test_good_clients_hear_their_own_beside_a_flood_of_leavers_whose_work_is_not_done(
    server, metric, eventually
):
    alone = [spoken(server, request) for request in GOOD]
    work = Work(server, metric)
    for request in GOOD:
        spoken(server, request)
    good_work = work.since() / len(GOOD)
    spoken(server, LONG)
    long_work = work.since()
    heard = asyncio.run(flood(server.grpc_url, server.http_url, GOOD))
    eventually(lambda: idle(server, metric))
    for audios, expected in zip(heard, alone, strict=True):
        for audio in audios:
            assert_same_audio(audio, expected)
    for_others = work.since() - sum(map(len, heard)) * good_work
    assert (for_others < MOST_WORK * LEAVERS * long_work).all()
