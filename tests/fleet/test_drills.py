"""What listeners hear while servers are full, restarted, killed and frozen."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from eventually import eventually
from tests.fleet.fleet import Fleet
from tests.fleet.front import Front
from tests.fleet.listeners import SHORT, TEXT, EndlessListener, Listener, difference, listening
from tests.fleet.speech_server import PLACES, SpeechServer
from tests.fleet.wires import cartesia, omni

ROUNDS = 5
"""In each of both ways."""
CROWD = 40
LISTENERS = 6
"""Speech listeners during a rolling restart, beside two sockets: two servers have room for more."""
SENTENCE = "word " * 6
"""Three seconds of speech."""


def test_as_many_at_once_as_there_are_places_are_served(fleet, fronts):
    for _ in range(ROUNDS):
        with listening(fronts, fleet.places) as listeners:
            assert [listener.begin() for listener in listeners] == [200] * fleet.places
            assert fleet.speaking == [PLACES] * len(fleet.servers)
        eventually(lambda: not any(fleet.speaking))


@pytest.fixture
def both_ways(behind_envoy, round_robin) -> list[Front]:
    """A front behind Envoy, and one that knows all servers."""
    return [behind_envoy[0], round_robin[0]]


def test_whoever_is_refused_hears_when_to_come_back_and_is_served(fleet, both_ways):
    with ThreadPoolExecutor(CROWD) as pool:
        refusals = list(pool.map(served_at_last, both_ways * (CROWD // len(both_ways))))
    assert sum(refusals) >= CROWD - fleet.places


def served_at_last(front: Front) -> int:
    """How often somebody was refused who comes back each time when told, until the speech was heard."""
    refusals = 0
    while (listener := Listener(front, SHORT)).end() == 503:
        refusals += 1
        time.sleep(int(listener.headers["retry-after-ms"]) / 1000)
    assert len(listener.whole)
    return refusals


def test_a_rolling_restart_is_not_heard(fleet, both_ways, plain_front):
    endless = [*speech_listeners(both_ways, plain_front), *socket_listeners(both_ways, plain_front)]
    try:
        for server in fleet.servers:
            heard_so_far = [each.heard for each in endless]
            server.restart()
            eventually(lambda: fleet.balancer.healthy == len(fleet.servers))
            # Each has heard something since, so that the next restart is not the first thing that it hears.
            wait_for_all(endless, heard_so_far)
    finally:
        for each in endless:
            each.stop()
    assert [each.complaint for each in endless] == [None] * len(endless)


def speech_listeners(fronts: list[Front], plain_front: Front) -> list[EndlessListener]:
    """Hear the same sentence by one request after another."""
    uncut = Listener(plain_front, SENTENCE).whole

    def hear(front: Front) -> str | None:
        return difference(Listener(front, SENTENCE).whole, uncut)

    return [EndlessListener(partial(hear, fronts[number % 2])) for number in range(LISTENERS)]


def socket_listeners(fronts: list[Front], plain_front: Front) -> list[EndlessListener]:
    """Hear the same text over a socket of each kind, to which it goes in pieces."""

    def hear(say: Callable[[Front], object], front: Front, uncut: object) -> str | None:
        return difference(say(front), uncut)

    return [
        EndlessListener(partial(hear, say, front, say(plain_front)))
        for say, front in zip((cartesia, omni), fronts, strict=True)
    ]


def wait_for_all(endless: list[EndlessListener], heard_so_far: list[int]) -> None:
    """Return when each has heard more than that, or has something to complain of."""
    eventually(
        lambda: all(
            each.complaint or each.heard > before for each, before in zip(endless, heard_so_far, strict=True)
        )
    )


def busiest(fleet: Fleet) -> SpeechServer:
    return max(fleet.servers, key=lambda server: server.speaking)


def test_streams_go_on_when_their_server_is_killed(fleet, both_ways):
    uncut = Listener(both_ways[0], TEXT).whole
    with listening(both_ways, LISTENERS, TEXT) as listeners:
        assert {listener.begin() for listener in listeners} == {200}
        server = busiest(fleet)
        assert server.speaking
        server.kill()
        assert [difference(listener.whole, uncut) for listener in listeners] == [None] * LISTENERS


def test_streams_go_on_and_new_ones_go_elsewhere_when_a_server_freezes(fleet, both_ways):
    """All of it while the server is frozen, whose connections stay open."""
    uncut = Listener(both_ways[0], TEXT).whole
    with listening(both_ways, LISTENERS, TEXT) as listeners:
        assert {listener.begin() for listener in listeners} == {200}
        server = busiest(fleet)
        assert server.speaking
        server.freeze()
        assert [Listener(front, SHORT).end() for front in both_ways * 2] == [200] * 4
        assert [difference(listener.whole, uncut) for listener in listeners] == [None] * LISTENERS
