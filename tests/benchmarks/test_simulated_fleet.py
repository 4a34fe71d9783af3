"""A fleet in simulated time: it agrees with the model of one GPU, and shows what harms listeners."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import simulated_fleet
from measuring.fleet_plan import Needs, plan, usual_load
from measuring.fleet_simulation import Fleet, Server, Simulation
from measuring.shared_gpu import SharedGpu
from measuring.speed_curve import curve_of, read_runs

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "server_first_come.json"
CURVE = curve_of(read_runs(RESULT))
GPU = SharedGpu(CURVE, 128)
NEEDS = Needs(1, 150)
MOST = plan(CURVE, NEEDS).most


def simulation(fleet: Fleet, load: float, seconds: float = 60.0) -> Simulation:
    demand = load * fleet.servers
    return Simulation(CURVE, fleet, lambda _: demand, demand, seconds, seed=1)


def test_utterances_that_share_a_server_end_when_they_should():
    server = Server([0.0, 10.0, 16.0])
    server.begin(0.0, 20.0)
    server.begin(1.0, 4.0)  # the first has 10 s left, and each is spoken with 8 s a second
    assert server.full
    assert server.next_end() == pytest.approx(1.5)
    server.end(1.5)
    assert server.next_end() == pytest.approx(1.5 + 6.0 / 10.0)
    assert server.drop() == [20.0]


@pytest.mark.parametrize("load", [120.0, 235.0])
def test_one_server_does_what_the_model_says(load):
    state = GPU.state(load)
    p50_ms, p95_ms = simulation(Fleet(1, fronts=1), load, 400.0).run().first_audio_ms()
    assert p50_ms == pytest.approx(state.first_audio_ms[0], rel=0.05)
    assert p95_ms == pytest.approx(state.first_audio_ms[1], rel=0.08)


def test_few_places_refuse_as_often_as_the_model_says():
    state = SharedGpu(CURVE, 4).state(96.0)
    figures = simulation(Fleet(1, fronts=1, places=4, tries=1), 96.0, 600.0).run()
    assert figures.refused_share == pytest.approx(state.refused, rel=0.15)
    assert figures.most_in_progress == 4


def test_the_least_loaded_server_is_soonest_and_a_pinned_front_overloads_its_own():
    p95 = {
        balancer: simulation(Fleet(10, balancer=balancer), MOST).run().first_audio_ms()[1]
        for balancer in ("random", "round robin", "least", "pinned")
    }
    assert p95["least"] < p95["round robin"] < p95["random"] < p95["pinned"] / 3


def test_a_refusal_that_is_asked_again_elsewhere_is_served():
    once, thrice = (
        simulation(Fleet(10, places=4, balancer="random", tries=tries), 96.0).run() for tries in (1, 3)
    )
    assert thrice.refused_share < once.refused_share / 4
    assert thrice.elsewhere > 0 == once.elsewhere


@pytest.mark.parametrize("servers", [3, 10])
def test_a_planned_fleet_bears_the_loss_of_a_server(servers):
    figures = simulation(Fleet(servers, pod_s=30.0), usual_load(MOST, NEEDS, servers), 80.0).lose(30.0).run()
    assert figures.first_audio_ms(30.0, 60.0)[1] < 150
    assert (figures.refused, figures.cut) == (0, 0)
    assert figures.resumed > 0
    assert [count for _, count in figures.servers] == [servers, servers - 1, servers]


def test_a_fleet_at_its_limit_does_not():
    figures = simulation(Fleet(3, pod_s=30.0), MOST, 80.0).lose(30.0).run()
    assert figures.first_audio_ms(30.0, 60.0)[1] > 300


@pytest.mark.parametrize(("surge", "fewest", "most"), [(True, 3, 4), (False, 2, 3)])
def test_an_update_replaces_each_server_and_refuses_nobody(surge, fewest, most):
    fleet = Fleet(3, pod_s=10.0)
    simulated = simulation(fleet, usual_load(MOST, NEEDS, 3), 80.0).update(20.0, surge)
    before = [*simulated.servers]
    figures = simulated.run()
    counts = [count for _, count in figures.servers]
    assert (min(counts), max(counts), counts[-1]) == (fewest, most, 3)
    assert not any(server in before for server in simulated.servers)
    assert figures.refused == 0


def test_an_autoscaler_starts_servers_while_the_demand_grows():
    load = usual_load(MOST, NEEDS, 4)
    fleet = Fleet(4, planned=int(GPU.state(load).in_progress), pod_s=20.0, most=8)
    grown = 4 * load * 1.6

    def demand(at_s: float) -> float:
        return min(4 * load * (1 + 0.006 * at_s), grown)

    with_it = Simulation(CURVE, fleet, demand, grown, 150.0, seed=1).run()
    without = Simulation(CURVE, replace(fleet, planned=0), demand, grown, 150.0, seed=1).run()
    assert 6 <= with_it.servers[-1][1] <= 8
    assert with_it.first_audio_ms(90.0)[1] < 150 < without.first_audio_ms(90.0)[1]


def test_runs_of_one_seed_are_alike():
    first, second = (simulation(Fleet(3), 200.0, 20.0).run() for _ in range(2))
    assert first == second


def test_the_command_shows_and_writes_each_table(capsys, tmp_path):
    arguments = ["--curve", str(RESULT), "--servers", "2", "--seconds", "15", "--pods-s", "30"]
    written = tmp_path / "all.json"
    assert simulated_fleet.main([*arguments, "--output", str(written)]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    report = json.loads(written.read_text("utf-8"))
    rows = [report[name] for name in ("balancers", "events", "growth")]
    assert [len(each) for each in rows] == [16, 6, 2]
    assert [len(each.splitlines()) for each in tables] == [18, 8, 4]


def test_a_fleet_of_one_is_refused(capsys):
    with pytest.raises(SystemExit):
        simulated_fleet.main(["--curve", str(RESULT), "--servers", "1"])
    assert "1 is fewer than 2" in capsys.readouterr().err
