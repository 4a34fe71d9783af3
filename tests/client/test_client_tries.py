"""How often, and what of, several servers are asked."""

from __future__ import annotations

import asyncio

from cosyvoice_client import UnavailableError
from cosyvoice_client.errors import LostError, RefusedError
from cosyvoice_client.tries import BUDGET, SHARE, TRIES, Tries

FULL = "server: 4 utterances are in progress, the limit; try again in {} s"


def asked(tries: Tries, *answers: object) -> tuple[object, int]:
    """The answer, or the error that is raised, and how many were asked."""
    left = list(answers)

    async def ask() -> object:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    try:
        found: object = asyncio.run(tries.offer(ask))
    except Exception as error:
        found = error
    return found, len(answers) - len(left)


def full(seconds: float) -> UnavailableError:
    return UnavailableError(FULL.format(seconds))


def test_refused_and_lost_requests_go_to_another_server():
    assert asked(Tries(several=True), full(1), LostError("gone"), "speech", "not asked") == ("speech", 3)


def test_one_server_is_asked_once():
    error, count = asked(Tries(several=False), full(1), "speech")
    assert (error.retry_after_s, error.tries, count) == (1.0, 1, 1)


def test_when_all_refuse_the_shortest_time_is_told():
    error, count = asked(Tries(several=True), full(3), full(0.5), LostError("gone"), "speech")
    assert (error.retry_after_s, error.tries, count) == (0.5, TRIES, TRIES)


def test_other_errors_are_told_at_once():
    error, count = asked(Tries(several=True), RefusedError("voice: unknown", "not_found"), "speech")
    assert (error.kind, count) == ("not_found", 1)


def test_full_fleet_is_not_asked_more_and_more():
    tries = Tries(several=True)
    counts = [asked(tries, full(1), full(1), full(1))[1] for _ in range(100)]
    assert sum(counts) == 100 + BUDGET
    for _ in range(round(1 / SHARE)):
        assert asked(tries, "speech") == ("speech", 1)
    assert asked(tries, full(1), "speech") == ("speech", 2)
