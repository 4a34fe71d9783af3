"""The figures of a server that is asked for too much, and the command against fake models."""

from __future__ import annotations

import json

import pytest

import overload
from cosyvoice_client import Timeline
from measuring.load import Sample
from measuring.overload import REFUSED, figures, verdicts


def spoken(started_s: float, ttfb_s: float = 0.5, user: int = 0, silence_s: float = 0.0) -> Sample:
    timeline = Timeline()
    timeline.add(ttfb_s, 1.0)
    timeline.add(ttfb_s + 1.0 + silence_s, 1.0)
    return Sample("text", started_s, latency_s=3.0, timeline=timeline, user=user)


def refused(started_s: float, latency_s: float = 0.01, user: int = 0) -> Sample:
    return Sample("text", started_s, latency_s, error=REFUSED, retry_after_s=1.0, user=user)


def test_admitted_refused_and_failed_are_told_apart():
    samples = [
        spoken(0.0),
        spoken(1.0, ttfb_s=1.5, silence_s=0.5),
        refused(2.0),
        Sample("text", 3.0, error="internal"),
    ]
    found = figures(samples, wall_s=4.0)
    assert [found[name] for name in ("asked", "admitted", "refused", "failed")] == [4, 2, 1, 1]
    assert found["ttfb_ms"]["max"] == 1500.0
    assert found["refusal_ms"]["max"] == 10.0
    assert (found["continuous_share"], found["requests_per_s"], found["audio_s_per_s"]) == (0.5, 0.5, 1.0)


def test_user_waits_from_his_first_question_until_he_is_admitted():
    samples = [refused(1.0), refused(2.0), spoken(4.0), spoken(7.0), refused(1.0, user=1)]
    found = figures(samples, wall_s=10.0, users=3)
    assert (found["served_least"], found["served_most"], found["never_served"]) == (0, 2, 2)
    assert (found["wait_ms"]["max"], found["wait_ms"]["mean"]) == (3000.0, 1500.0)


@pytest.mark.parametrize(("ttfb_s", "met"), [(1.9, 4), (2.1, 3)])
def test_first_audio_at_twice_the_capacity_is_compared_with_that_at_half_of_it(ttfb_s, met):
    half = figures([spoken(0.0, ttfb_s=1.0)], 10.0) | {"factor": 0.5}
    twice = figures([spoken(0.0, ttfb_s=ttfb_s), refused(0.1)], 10.0) | {"factor": 2.0}
    assert [verdict.startswith("met") for verdict in verdicts([half, twice])].count(True) == met


def test_slow_refusals_silences_and_users_without_a_turn_are_missed():
    level = figures([spoken(0.0, silence_s=1.0), refused(1.0, latency_s=0.06)], 10.0, users=2)
    assert [verdict.split(":")[0] for verdict in verdicts([level])] == ["missed"] * 3


def test_command_measures_a_server(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(overload, "TEXTS", ("chunks=2",))
    line = ["--url", server.grpc_url, "--clients", "2", "--factors", "0.5", "--seconds", "0.5"]
    assert overload.main([*line, "--output-dir", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "overload.json").read_text())
    assert [level["load"] for level in report["levels"]] == ["8 users", "2 users", "0.5 times the capacity"]
    assert all(level["admitted"] and not level["failed"] for level in report["levels"])
    assert "| 2 users |" in capsys.readouterr().out


def test_server_that_is_not_there_is_told(tmp_path):
    line = ["--url", "localhost:9", "--capacity", "1", "--clients", "1", "--output-dir", str(tmp_path)]
    assert overload.main(line) == 3
