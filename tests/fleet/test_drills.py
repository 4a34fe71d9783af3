"""What listeners hear while servers are full, restarted, killed and frozen."""

from __future__ import annotations

import pytest

from drills import crowds, deaths, formats, stores
from drills.front import Front
from drills.rolling import rolling_restart


@pytest.fixture
def both_ways(behind_envoy, round_robin) -> list[Front]:
    """A front behind Envoy, and one that knows all servers."""
    return [behind_envoy[0], round_robin[0]]


def test_as_many_at_once_as_there_are_places_are_served(fleet, fronts):
    assert crowds.as_many_as_places(fleet, fronts, rounds=4).faults == []


def test_whoever_is_refused_hears_when_to_come_back_and_is_served(fleet, both_ways):
    assert crowds.more_than_places(fleet, both_ways).faults == []


def test_a_rolling_restart_is_not_heard(fleet, both_ways, plain_front):
    assert rolling_restart(fleet, both_ways, plain_front).faults == []


@pytest.mark.parametrize(
    "strike",
    [deaths.kill_one_after_the_other, deaths.kill_part("token2wav")],
    ids=["two servers killed", "networks killed"],
)
def test_streams_go_on_when_their_server_is_killed(fleet, both_ways, strike):
    outcome = deaths.while_six_listen(fleet, both_ways, lambda: strike(fleet))
    assert outcome.faults == []
    assert outcome.resumed


def test_streams_go_on_and_new_ones_go_elsewhere_when_a_server_freezes(fleet, both_ways):
    outcome = deaths.frozen(fleet, both_ways)
    assert outcome.faults == []
    assert outcome.resumed


def test_streams_go_on_when_the_balancer_is_restarted(fleet, behind_envoy):
    outcome = deaths.while_six_listen(fleet, behind_envoy, lambda: deaths.restart_balancer(fleet))
    assert (outcome.faults, outcome.resumed) == ([], deaths.LISTENERS)


def test_a_killed_front_costs_its_own_streams_alone(fleet, round_robin):
    assert stores.front_killed(fleet, round_robin).faults == []


def test_words_and_formats_with_state_go_on_from_another_server(fleet, round_robin):
    outcome = formats.while_two_servers_die(fleet, round_robin)
    assert (outcome.faults, outcome.resumed) == ([], 4)
