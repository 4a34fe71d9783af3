"""What benchmarks/before_after.py makes of its rounds, and a run against a real server with fake models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import before_after
from before_after import Side, compared
from measuring.own_server import environment


class FakeModels:
    """Stands for a side's own server."""

    started: list[Path]
    url: str
    start_s = 1.0

    def __init__(self, repository: Path, folder: Path, checkout: Path) -> None:
        self.started.append(checkout)

    def __enter__(self) -> FakeModels:
        return self

    def __exit__(self, *_: object) -> None:
        """The server is that of all tests."""


@pytest.fixture
def started(server, monkeypatch) -> list[Path]:
    """Checkouts whose servers were started, in this order."""
    monkeypatch.setattr(FakeModels, "started", [], raising=False)
    monkeypatch.setattr(FakeModels, "url", server.grpc_url, raising=False)
    monkeypatch.setattr(before_after, "OwnServer", FakeModels)
    monkeypatch.setattr(Side, "prepare", lambda side, checkpoint, folder: folder)
    return FakeModels.started


def test_sides_are_served_in_turn_and_all_levels_are_compared(started, tmp_path, capsys):
    output = tmp_path / "results"
    line = [
        "a:/a",
        "b:/b",
        "--clients",
        "1,2",
        "--rates",
        "20",
        "--seconds",
        "0.2",
        "--output-dir",
        str(output),
    ]
    assert before_after.main(line) == 0
    assert started == [Path("/a"), Path("/b")] * 3
    report = json.loads((output / "before_after.json").read_text())
    assert {row["load"] for row in report["rows"]} == {"1 client", "2 clients", "20/s poisson"}
    assert {len(row[side]) for row in report["rows"] for side in ("before", "after")} == {3}
    assert {level["figures"]["requests"] > 0 for one in report["rounds"] for level in one["levels"]} == {True}
    assert "| 2 clients | TTFB p95 ms |" in capsys.readouterr().out


def test_round_that_would_not_end_in_time_does_not_begin(started, tmp_path, capsys):
    line = ["a:/a", "b:/b", "--clients=1", "--rates=none", "--seconds=0.1", "--limit=0.1"]
    assert before_after.main([*line, f"--output-dir={tmp_path}"]) == 1
    assert started == [Path("/a")]
    assert "no time for round 1 of b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("after", "more_is_better", "difference", "verdict"),
    [
        ([120.0, 121.0, 122.0], False, "+19.8 %", "worse"),
        ([120.0, 121.0, 122.0], True, "+19.8 %", "better"),
        ([80.0, 81.0, 82.0], False, "-19.8 %", "better"),
        ([100.0, 121.0, 122.0], False, "+19.8 %", "noise"),  # one round is among those before
        ([103.0, 103.0, 103.0], False, "+2.0 %", "noise"),  # apart by no more than the rounds before
        ([150.0], False, "+48.5 %", "too few rounds"),
    ],
)
def test_difference_counts_if_all_rounds_and_the_medians_are_apart(
    after, more_is_better, difference, verdict
):
    row = compared([100.0, 101.0, 102.0], after, more_is_better)
    assert (row["difference"], row["verdict"]) == (difference, verdict)


def test_difference_from_nothing_has_no_percentage():
    assert compared([0.0] * 3, [2.0] * 3, more_is_better=False)["difference"] == "-"


def test_level_without_an_answer_is_left_out():
    figures = {
        "ttfb_ms": None,
        "audio_s_per_s": 0.0,
        "continuous_share": None,
        "errors": {"x": 2},
        "requests": 2,
    }
    rounds = [{"side": side, "levels": [{"clients": 1, "figures": figures}]} for side in ("a", "b")]
    assert [row["figure"] for row in before_after.rows(["a", "b"], rounds)] == ["audio s/s", "failed"]


def test_side_is_a_name_a_checkout_and_settings():
    side = Side.read("six:/old:token2wav.ode_steps=6,device=cpu,cpu")
    assert side == Side("six", Path("/old"), ("token2wav.ode_steps=6", "device=cpu,cpu"))
    assert Side.read("after:.").checkout == Path.cwd()
    for text in ("no checkout", "a b:.", "name:"):
        with pytest.raises(ValueError, match=text):
            Side.read(text)
    for sides in (["a:.", "a:."], ["a:."], ["a:.", "b:.", "b:."]):
        with pytest.raises(SystemExit, match="2"):
            before_after.main(sides)


def test_each_further_side_is_compared_with_the_first():
    figures = {"ttfb_ms": None, "audio_s_per_s": 2.0, "continuous_share": None, "errors": {}, "requests": 2}
    given = {"a": figures, "b": {**figures, "audio_s_per_s": 3.0}, "c": {**figures, "audio_s_per_s": 1.0}}
    rounds = [{"side": side, "levels": [{"clients": 1, "figures": one}]} for side, one in given.items()]
    found = before_after.rows(list(given), rounds)
    assert [(row["side"], row["before"], row["after"]) for row in found if row["figure"] == "audio s/s"] == [
        ("b", [2.0], [3.0]),
        ("c", [2.0], [1.0]),
    ]


def test_code_is_that_of_the_checkout_and_not_what_is_installed(tmp_path):
    (tmp_path / "cosyvoice_runtime.py").touch()
    command = [sys.executable, "-c", "import cosyvoice_runtime; print(cosyvoice_runtime.__file__)"]
    told = subprocess.run(
        command, env=environment(tmp_path), cwd="/", capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == str(tmp_path / "cosyvoice_runtime.py")
