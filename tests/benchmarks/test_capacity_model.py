"""How many GPUs listeners need, held to recorded runs, to known laws and to what users see."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import capacity
from measuring.figures import PERCENTILES
from measuring.fleet_plan import Needs, OutOfReach, otherwise, plan, usual_load
from measuring.shared_gpu import SharedGpu, shares_begun
from measuring.speed_curve import BadCurve, Curve, curve_of, read_runs, steepest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RUNS = read_runs(RESULTS / "server_first_come.json")
CURVE = curve_of(RUNS)
P50, P95 = (PERCENTILES.index(percentile) for percentile in (50, 95))
PLACES = 128


def flat(speeds: tuple[float, ...], first_ms: float = 50.0) -> Curve:
    """A machine that begins all at one time, with these speeds with 1, 2, ... utterances."""
    row = tuple(first_ms * (1 + 0.01 * i) for i in range(len(PERCENTILES)))
    counts = tuple(float(count) for count in range(1, len(speeds) + 1))
    return Curve(counts, speeds, (row,) * len(speeds))


@pytest.mark.parametrize(
    "run", [run for run in RUNS if 0 < run.rate < 30], ids=lambda run: f"{run.rate:g} a second"
)
def test_recorded_open_loops_begin_as_soon_as_the_model_says(run):
    p50_ms, p95_ms = SharedGpu(CURVE, PLACES).state(run.asked).first_audio_ms
    assert p50_ms == pytest.approx(run.first_audio_ms[P50], rel=0.10)
    assert p95_ms == pytest.approx(run.first_audio_ms[P95], rel=0.20)


def test_recorded_open_loops_of_other_machines_begin_as_soon_as_the_model_says():
    """Up to 10 requests a second: at 20 that file has no point near the number in progress."""
    runs = read_runs(RESULTS / "server_prompts_h100.json", settings="prompts in fused kernels")
    gpu = SharedGpu(curve_of(runs), PLACES)
    recorded = [run for run in runs if 0 < run.rate <= 10]
    assert len(recorded) == 7
    for run in recorded:
        p50_ms, p95_ms = gpu.state(run.asked).first_audio_ms
        assert p50_ms == pytest.approx(run.first_audio_ms[P50], rel=0.10)
        assert p95_ms == pytest.approx(run.first_audio_ms[P95], rel=0.20)


def test_recorded_open_loops_of_a_cpu_begin_as_soon_as_the_model_says():
    """At 0.5 and 0.8 of its peak; past that a run has no length that would be long enough."""
    runs = read_runs(RESULTS / "server_cpu_demo.json")
    curve = curve_of(runs)
    half, most, beyond = (run for run in runs if run.rate)
    peak = max(curve.speed)
    assert [run.asked / peak for run in (half, most)] == pytest.approx([0.5, 0.8], abs=0.05)
    assert beyond.asked > peak
    for run in (half, most):
        state = SharedGpu(curve, 8).state(run.asked)
        assert state.first_audio_ms == pytest.approx(
            [run.first_audio_ms[P50], run.first_audio_ms[P95]], rel=0.15
        )
        assert state.in_progress == pytest.approx(run.in_progress, rel=0.15)


def test_open_loops_are_not_in_the_curve():
    without = curve_of([run for run in RUNS if run.clients])
    assert without == CURVE
    assert [round(count) for count in CURVE.in_progress] == [1, 16, 63, 77, 114]


def test_one_speed_however_many_gives_the_law_of_one_queue():
    """Processor sharing at one speed is M/M/1 with places: a geometric distribution."""
    shares = SharedGpu(flat((10.0, 10.0)), 200).in_progress(8.0)
    assert shares[:3] == pytest.approx([0.2, 0.2 * 0.8, 0.2 * 0.64])


def test_a_speed_for_each_gives_erlangs_formula():
    """Each utterance at real time, and none waits: refusals are Erlang's B of 5 places and a demand of 3."""
    refused = SharedGpu(flat((1.0, 2.0, 3.0, 4.0, 5.0)), 5).state(3.0).refused
    terms = [3**k / math.factorial(k) for k in range(6)]
    interpolated = SharedGpu(flat((1.0, 2.0, 3.0, 4.0, 5.0)), 5).in_progress(3.0)
    assert refused == pytest.approx(terms[-1] / sum(terms))
    assert interpolated == pytest.approx([term / sum(terms) for term in terms])


def test_the_distribution_goes_through_the_measured_percentiles():
    values = np.log([41.0, 45.0, 46.0, 48.0])
    assert shares_begun(values, values) == pytest.approx([percentile / 100 for percentile in PERCENTILES])
    early, late = shares_begun(values, np.log([37.0, 60.0]))
    assert 0 < early < 0.2
    assert 0.99 < late <= 1


def test_the_greatest_demand_is_at_the_limit():
    gpu = SharedGpu(CURVE, PLACES)
    demands = [gpu.most(limit_ms, 0.001) for limit_ms in (120, 150, 200)]
    assert demands == sorted(demands)
    assert gpu.state(demands[1]).first_audio_ms[1] == pytest.approx(150, rel=1e-3)
    assert gpu.state(1.02 * demands[1]).first_audio_ms[1] > 150


def test_refusals_limit_the_demand_where_places_are_few():
    gpu = SharedGpu(CURVE, 4)
    assert gpu.state(gpu.most(1_000, 0.01)).refused == pytest.approx(0.01, rel=1e-3)


def test_gpus_make_what_is_asked_for_even_if_the_spare_ones_are_away():
    for listeners in (10, 100, 700, 1_000, 10_000, 100_000):
        needs = Needs(listeners, 150)
        found = plan(CURVE, needs)
        away = max(1, int(found.gpus * needs.spare / (1 + needs.spare)))
        assert needs.demand * (1 + needs.grows) <= (found.gpus - away) * found.most
        assert found.needed <= found.growing < found.gpus


def test_one_of_any_planned_fleet_may_be_lost():
    needs = Needs(1, 150)
    most = plan(CURVE, needs).most
    for gpus in (2, 3, 4, 10, 44):
        load = usual_load(most, needs, gpus)
        assert load * (1 + needs.grows) * gpus / (gpus - 1) <= most * (1 + 1e-9)


def test_planned_is_below_the_limit_and_grows_with_the_fleet():
    found = [plan(CURVE, Needs(listeners, 150)) for listeners in (100, 1_000, 10_000)]
    assert [each.planned for each in found] == sorted(each.planned for each in found)
    assert all(1 <= each.planned < each.limit.in_progress for each in found)
    assert all(each.usual.first_audio_ms[1] < 150 for each in found)


@pytest.mark.parametrize("values", ["values.yaml", "examples/h100.yaml"])
def test_the_chart_is_planned_by_the_model(values):
    chart = yaml.safe_load((ROOT / "deploy/helm/cosyvoice" / values).read_text("utf-8"))
    autoscaling = chart["server"]["autoscaling"]
    needs = Needs(1, 150)
    gpu = SharedGpu(CURVE, needs.places)
    load = usual_load(gpu.most(needs.ttfb_p95_ms, needs.refused), needs, autoscaling["max"])
    assert autoscaling["planned"] == int(gpu.state(load).in_progress)


def test_each_assumption_changes_the_plan_as_it_should():
    needs = Needs(10_000, 150)
    found = plan(CURVE, needs)
    others = dict(otherwise(CURVE, needs))
    assert others["30 % of the time is heard"].gpus < others["50 % of the time is heard"].gpus < found.gpus
    assert others["GPUs are 27 % slower"].gpus > others["GPUs are 10 % slower"].gpus > found.gpus
    assert others["first audio is 10 % later"].gpus > found.gpus
    assert others["a pod takes a minute"].gpus < found.gpus < others["a pod takes a quarter of an hour"].gpus
    assert others["a front has 64 streams"].fronts > found.fronts
    assert others["a front is kept at 30 % of its core"].gpus == found.gpus


def test_an_assumption_may_be_out_of_reach():
    needs = Needs(1_000, 55)
    assert dict(otherwise(CURVE, needs))["95 of 100 begin within 44 ms"] is None


def test_first_audio_that_no_machine_reaches_is_refused():
    with pytest.raises(OutOfReach, match="ttfb_p95_ms is 40; the machine needs 46 for one listener alone"):
        plan(CURVE, Needs(100, 40))


def test_steep_parts_of_a_curve_are_named():
    assert steepest(CURVE, 60) is None
    few = replace(
        CURVE,
        in_progress=CURVE.in_progress[:1] + CURVE.in_progress[3:],
        speed=CURVE.speed[:1] + CURVE.speed[3:],
        first_audio_ms=CURVE.first_audio_ms[:1] + CURVE.first_audio_ms[3:],
    )
    assert steepest(few, 60) == (few.in_progress[0], few.in_progress[1])


def test_results_of_the_benchmark_are_a_curve(tmp_path):
    recorded = json.loads((RESULTS / "server_first_come.json").read_text("utf-8"))
    runs = {run["load"]: run["figures"] for run in recorded["runs"] if run["settings"] == "default"}
    levels = [
        {"clients": 1, "listen": False, "figures": runs["1 clients"]},
        {"clients": 16, "listen": False, "figures": runs["16 clients"]},
        {"clients": 200, "listen": True, "figures": runs["200 clients, who listen"]},
        {"rate": 5.0, "arrivals": "poisson", "figures": runs["5 requests a second"]},
    ]
    (tmp_path / "results.json").write_text(json.dumps({"levels": levels}))
    found = read_runs(tmp_path / "results.json")
    assert [(run.clients, run.rate) for run in found] == [(1, 0), (16, 0), (0, 5)]
    assert len(curve_of(found).speed) == 2


def test_a_file_without_a_curve_says_what_is_missing(tmp_path, capsys):
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(BadCurve, match="needs levels"):
        read_runs(tmp_path / "none.json")
    with pytest.raises(
        BadCurve, match="closed loops with 1 client and with more are needed; the file has none"
    ):
        curve_of(read_runs(RESULTS / "server_first_come.json", settings="absent"))
    command = ["--curve", str(RESULTS / "server_first_come.json"), "--listeners", "9", "--ttfb-p95-ms", "150"]
    assert capacity.main([*command, "--gpu", "H200"]) == 1
    assert "the file has 16, 64" in capsys.readouterr().err


def test_the_command_says_what_a_fleet_needs(capsys, tmp_path):
    command = ["--curve", str(RESULTS / "server_first_come.json"), "--output", str(tmp_path / "all.json")]
    assert capacity.main([*command, "--listeners", "10000", "--ttfb-p95-ms", "150"]) == 0
    said = capsys.readouterr().out
    found = plan(CURVE, Needs(10_000, 150))
    assert f"| GPUs for the demand | {found.needed} |" in said
    assert f"planned: {found.planned}}}" in said
    assert "| servers to fronts | 7,680 Mbit/s |" in said
    [written] = json.loads((tmp_path / "all.json").read_text("utf-8"))["plans"]
    assert written["plan"]["gpus"] == found.gpus


def test_the_command_makes_a_table_of_many(capsys):
    command = ["--curve", str(RESULTS / "server_first_come.json"), "--share", "0.5"]
    assert capacity.main([*command, "--listeners", "100,100000", "--ttfb-p95-ms", "120,150,200"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 100")]
    assert len(rows) == 6
    assert rows[0].endswith("| 38 / 19 |")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--share", "1.5", "1.5 is not between 0.001 and 1"), ("--listeners", "10,0", "0 is not between 1 and")],
)
def test_numbers_beyond_their_limits_are_refused(option, value, said, capsys):
    with pytest.raises(SystemExit):
        capacity.main(["--curve", "x", "--listeners", "9", "--ttfb-p95-ms", "150", option, value])
    assert said in capsys.readouterr().err
