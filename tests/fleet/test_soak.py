"""Clients of every kind, while a server and a gateway are killed."""

from __future__ import annotations

from drills.soak import Soak, settings

SECONDS, EVERY_S = 6.0, 3.0
CLIENTS = 4


def test_every_request_has_an_end_that_it_should_have(fleet):
    given = settings(fleet)
    with (
        fleet.fronts(1, fleet.balancer.grpc_url, **given) as behind_envoy,
        fleet.fronts(1, ",".join(fleet.addresses), **given) as round_robin,
    ):
        soaked = Soak(fleet, [*behind_envoy, *round_robin]).run(SECONDS, EVERY_S, CLIENTS)
    assert soaked.outcome.faults == []
    assert soaked.blows == {"server killed": 1, "gateway killed": 1}
    assert soaked.endings["spoken, the same samples"]
