"""What the benchmarks of the speech LM's runtimes on a CPU report."""

from __future__ import annotations

import json
import sys
from statistics import stdev

import pytest

import heard_weights
import lm_runtimes
from measuring.paired import measured


def test_runtimes_are_measured_and_compared(tiny_checkpoint, tmp_path, monkeypatch, capsys):
    path = tmp_path / "figures.json"
    line = ["--checkpoint", tiny_checkpoint, "--only", "onnx-float32", "--steps", 3, "--rounds", 1]
    line += ["--batches", 1, 2, "--positions", 9, "--json", path]
    monkeypatch.setattr(sys, "argv", ["lm_runtimes.py", *map(str, line)])
    lm_runtimes.main()
    [row] = json.loads(path.read_text())["figures"].values()
    assert sorted(row["step_ms"]) == ["1", "2"]
    assert min(row["prompt_ms"], row["peak_mib"], *row["least_ms"].values()) > 0
    assert row["error"] < 1e-5
    assert "| onnx-float32 |" in capsys.readouterr().out


def reading(words: int, float32: int, int8: int) -> dict:
    return {
        "words": words,
        "errors": {"float32": float32, "int8": int8},
        "tokens": {"float32": 10, "int8": 11},
    }


class Echo:
    """A listener that hears as many wrong words as a sentence has letters, and some more."""

    def __init__(self, more: int) -> None:
        self._more = more

    def row(self, task: tuple[int, str]) -> dict:
        seed, text = task
        return {"seed": seed, "errors": len(text) + self._more}


def test_every_task_is_heard_once_in_processes_of_their_own():
    *_, rows = measured(Echo, (3,), [(seed, "a" * seed) for seed in range(5)], processes=2)
    assert sorted(row["seed"] for row in rows) == list(range(5))
    assert all(row["errors"] == row["seed"] + 3 for row in rows)


def test_difference_of_what_is_heard_comes_with_its_error():
    found = heard_weights.summary([reading(10, 1, 2), reading(10, 2, 1), reading(20, 3, 5)])
    assert found["word_error_rate"] == {"float32": 6 / 40, "int8": 8 / 40}
    assert found["difference"] == pytest.approx(0.05)
    residuals = [0.5, -1.5, 1.0]
    assert found["standard_error"] == pytest.approx(stdev(residuals) / 3**0.5 / (40 / 3))
    assert found["tokens_of_int8_by_float32"] == pytest.approx(1.1)
