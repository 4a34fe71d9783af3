"""Figures in exact numbers."""

from __future__ import annotations

import pytest

from cosyvoice_client.timeline import Arrival, Timeline
from measuring.figures import is_continuous, spread, summarise
from measuring.load import Sample
from measuring.report import markdown
from measuring.triton_statistics import difference


def sample(*arrivals, latency_s=2.0, error=None):
    timeline = Timeline([Arrival(*arrival) for arrival in arrivals])
    reasons = () if error else ("stop",)
    return Sample("a", 0.0, latency_s, timeline, reasons, error)


def test_percentiles_are_interpolated_and_in_milliseconds():
    assert spread([0.001 * value for value in range(1, 101)]) == {
        "mean": 50.5,
        "p50": 50.5,
        "p90": 90.1,
        "p95": 95.05,
        "p99": 99.01,
        "max": 100.0,
    }
    assert spread([]) is None


def test_summary_of_a_run():
    samples = [
        sample((0.25, 1.0), (0.75, 1.0), latency_s=1.0),
        sample((0.5, 0.5), (1.5, 1.5), latency_s=2.0),
        sample((0.25, 9.0), latency_s=9.0, error="timeout"),
        sample(error="unavailable"),
    ]
    figures = summarise(samples, wall_s=8.0)
    assert figures["requests"] == 4
    assert figures["errors"] == {"timeout": 1, "unavailable": 1}
    assert figures["finish_reasons"] == {"stop": 2}
    assert (figures["audio_s"], figures["rtf"], figures["audio_s_per_s"]) == (4.0, 2.0, 0.5)
    assert figures["requests_per_s"] == 0.25
    assert (figures["ttfb_ms"]["p50"], figures["ttfb_ms"]["max"]) == (375.0, 500.0)
    assert (figures["gap_ms"]["p50"], figures["latency_ms"]["p50"]) == (750.0, 1500.0)
    assert figures["rtf_per_request"]["p50"] == 0.75
    assert (figures["underruns"], figures["underrun_s"]) == (1, 0.5)
    assert figures["cushion_ms"]["max"] == 500.0


@pytest.mark.parametrize(("late_s", "continuous", "gapless"), [(0.0, 1, 1), (0.0625, 1, 0), (0.125, 0, 0)])
def test_silence_of_up_to_100_ms_is_continuous(late_s, continuous, gapless):
    figures = summarise([sample((1.0, 1.0), (2.0 + late_s, 1.0))], wall_s=1.0)
    assert (figures["continuous_share"], figures["gapless_share"]) == (continuous, gapless)


@pytest.mark.parametrize("error", ["unavailable", "timeout", "not_sent"])
def test_failed_request_is_not_continuous(error):
    failed = sample((1.0, 1.0), error=error)
    assert not is_continuous(failed, 0.1)
    assert summarise([failed, sample((1.0, 1.0))], wall_s=1.0)["continuous_share"] == 0.5


def test_run_without_audio_has_no_figures():
    figures = summarise([sample(error="unavailable")], wall_s=1.0)
    assert figures["ttfb_ms"] is figures["rtf"] is figures["rtf_per_request"] is None
    assert (figures["audio_s_per_s"], figures["continuous_share"]) == (0.0, 0.0)
    level = {"clients": 1, "figures": figures, "client_lag_ms": None, "triton": {}}
    machine = {"cpu": "cpu", "cores": 1, "gpus": []}
    head = {"mode": "streaming", "time": "now", "commit": None, "command": "c", "machine": machine}
    assert "| 1 client | 1 | 1 unavailable | - | - | 0.0% |" in markdown(
        {**head, "server": {}, "levels": [level]}
    )


def test_statistics_count_what_happened_between():
    def model(name, requests, executions, queue_ms):
        return {
            "name": name,
            "version": "1",
            "inference_count": str(requests),
            "execution_count": str(executions),
            "inference_stats": {
                "success": {"count": str(requests), "ns": "0"},
                "fail": {"count": "1"},
                "queue": {"count": str(requests), "ns": str(queue_ms * 1_000_000)},
            },
        }

    before = {
        "model_stats": [model("a", 10, 10, 100), model("idle", 3, 3, 1), {"name": "new", "version": "1"}]
    }
    after = {"model_stats": [model("a", 18, 12, 500), model("idle", 3, 3, 1), model("new", 2, 2, 4)]}
    found = difference(before, after)
    assert set(found) == {"a", "new"}
    assert found["a"] == {
        "requests": 8,
        "failures": 0,
        "executions": 2,
        "mean_batch": 4.0,
        "queue_ms": 50.0,
        "compute_input_ms": 0.0,
        "compute_infer_ms": 0.0,
        "compute_output_ms": 0.0,
    }
    assert (found["new"]["requests"], found["new"]["queue_ms"]) == (2, 2.0)
