"""Stages that answer after the time of a curve: alone by a clock of their own, and within a real server."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import front
import timed_fleet
from cosyvoice_runtime.engine.batches.chunk import WaveChunk
from measuring.speed_curve import Curve
from measuring.timed_stages import TIMED, TOKENS_S, TimedGpu

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "server_first_come.json"
FIRST_MS = (500.0, 501.0, 502.0, 503.0)
CURVE = Curve((1.0, 2.0), (10.0, 16.0), (FIRST_MS, FIRST_MS))


def chunk(name: str, position_s: float, end_s: float, last: bool = False) -> WaveChunk:
    position, end = round(position_s * TOKENS_S), round(end_s * TOKENS_S)
    return WaveChunk(name, [1] * (end - position), position, last, "voice", 0)


def until(gpu: TimedGpu) -> float:
    """When the next chunk is delivered, on the way to which nobody comes."""
    while True:
        at = gpu.next_at()
        assert at is not None
        if delivered := gpu.advance(at):
            for deliver in delivered:
                deliver()
            return at


def test_chunks_come_when_their_share_of_the_gpu_has_made_them():
    gpu, came = TimedGpu(CURVE, slower=2.0, seed=0), list[str]()
    gpu.advance(100.0)
    gpu.begin("one", 10.0)
    gpu.want(chunk("one", 0, 1), lambda: came.append("first"))
    assert until(gpu) == pytest.approx(101.0, abs=0.02)  # first audio, twice as late
    gpu.begin("two", 4.0)
    gpu.want(chunk("one", 1, 10, last=True), lambda: came.append("rest"))
    gpu.want(chunk("two", 0, 4, last=True), lambda: came.append("two"))
    # The first has had 5 s in a second. Each is given 4 s a second, and then the first 5 a second alone.
    assert until(gpu) == pytest.approx(102.0, abs=0.02)
    assert until(gpu) == pytest.approx(102.0 + 1.0 / 5.0, abs=0.02)
    assert came == ["first", "two", "rest"]
    assert len(gpu) == 0


def test_an_utterance_that_is_forgotten_leaves_the_gpu_to_others():
    gpu, came = TimedGpu(CURVE, slower=1.0, seed=0), list[str]()
    gpu.begin("one", 8.0)
    gpu.begin("two", 8.0)
    gpu.want(chunk("one", 0, 8, last=True), lambda: came.append("one"))
    gpu.want(chunk("two", 0, 8, last=True), lambda: came.append("two"))
    gpu.advance(0.5)
    gpu.end("two")
    assert until(gpu) == pytest.approx(0.5 + 4.0 / 10.0)
    assert came == ["one"]
    assert gpu.next_at() is None


def test_a_chunk_of_a_spoken_utterance_is_there():
    gpu, came = TimedGpu(CURVE, slower=1.0, seed=0), list[str]()
    gpu.begin("one", 1.0)
    gpu.advance(5.0)
    gpu.want(chunk("one", 0.5, 1.0, last=True), lambda: came.append("late"))
    assert until(gpu) == 5.0
    assert came == ["late"]


def test_the_front_s_benchmark_renders_a_server_with_timed_stages(tmp_path):
    pytest.importorskip("torch", reason="a checkpoint is made with torch")
    front.serve(tmp_path, "max_inflight_utterances=4")
    model = tmp_path / "repository" / "token2wav"
    compile((model / "1" / "model.py").read_text("utf-8"), "model.py", "exec")
    told = json.loads((model / TIMED).read_text("utf-8"))
    assert Curve(**told["curve"]).speeds(np.array([200.0])) == pytest.approx([2000.0])


@pytest.mark.slow
def test_a_real_server_with_timed_stages_speaks(tmp_path, capsys):
    """The speech of a server is compared with the simulation, which no assertion here depends on."""
    command = ["--curve", str(RESULT), "--servers", "1", "--slower", "2", "--seconds", "4", "--load", "0.1"]
    written = tmp_path / "timed.json"
    assert timed_fleet.main([*command, "--small-load", "3", "--output", str(written)]) == 0
    calm, full = json.loads(written.read_text("utf-8"))["rows"]
    assert (calm["refused"], calm["other errors"]) == ("0 %", "none")
    assert (full["refused"] != "0 %", full["other errors"]) == (True, "none")
    assert "| places |" in capsys.readouterr().out
