"""The benchmark of engines runs them all alike, and its figures are what the clock says."""

from __future__ import annotations

import json

import pytest
from coded_vllm import exported_model

import lm_engines
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.engines import torch as torch_engine
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.settings import Machine

TINY = ["max_slots=4", "max_sequence_tokens=256", "max_tokens=50", "dtype=float32"]


@pytest.fixture
def no_gpu(monkeypatch) -> None:
    """The network of engine torch runs on the CPU, whatever device the settings name."""
    monkeypatch.setattr(lm_engines.Machine, "here", lambda: Machine(cores=1, gpu=True))
    on_cpu = torch_engine.load_speech_lm
    monkeypatch.setattr(
        torch_engine,
        "load_speech_lm",
        lambda config, tensors, device, dtype: on_cpu(config, tensors, "cpu", dtype),
    )


def test_every_engine_and_strategy_is_measured(vllm, no_gpu, tiny_checkpoint, tmp_path, capsys):
    vllm.load_model = exported_model
    arguments = ["--checkpoint", str(tiny_checkpoint), "--engines", "torch", "vllm", "vllm_alone"]
    sizes = ["--concurrency", "1", "3", "--strategies", "greedy", "ras", "--tokens", "4", "--repeats", "2"]
    lm_engines.main([*arguments, *sizes, "--json", str(tmp_path / "figures.json"), "device=cuda", *TINY])
    report = json.loads((tmp_path / "figures.json").read_text())
    assert [(row["engine"], row["strategy"], row["concurrency"]) for row in report["figures"]] == [
        *(("torch", strategy, requests) for strategy in ("greedy", "ras") for requests in (1, 3)),
        *(("vllm", strategy, requests) for strategy in ("greedy", "ras") for requests in (1, 3)),
        *(("vllm_alone", "greedy", requests) for requests in (1, 3)),
    ]
    assert all(row["tokens_per_s"] > 0 and len(row["tokens_per_s_runs"]) == 2 for row in report["figures"])
    assert [engine.alive for engine in vllm.engines] == [False, False]
    assert vllm.engines[0].args["logits_processors"] != vllm.engines[1].args["logits_processors"] is None
    assert "| vllm_alone | greedy | 3 |" in capsys.readouterr().out


class TimedEngine:
    """Each step takes a tenth of a second of a clock of its own and brings every request a token."""

    slots = prefill_batch = 8

    def __init__(self) -> None:
        self.now = 0.0
        self._left: dict[int, int] = {}

    def add(self, prompt, options):
        self._left[len(self._left)] = options.max_tokens
        return len(self._left) - 1

    def step(self):
        self.now += 0.1
        rows = []
        for handle in list(self._left):
            self._left[handle] -= 1
            ended = FinishReason.LENGTH if not self._left[handle] else None
            rows.append(Progress(handle, [5], ended, self.failure(handle)))
        self._left = {handle: left for handle, left in self._left.items() if left}
        return rows

    def failure(self, handle):
        return None


def test_figures_are_medians_by_the_clock(monkeypatch):
    engine = TimedEngine()
    monkeypatch.setattr(lm_engines.time, "perf_counter", lambda: engine.now)
    prompts = lm_engines.make_prompts(4, 6561)
    rate, per_token_ms, first_ms, rates = lm_engines.measure(engine, prompts, "ras", tokens=20, repeats=3)
    assert rates == pytest.approx([4 * 20 / 2.0] * 3)
    assert (rate, per_token_ms, first_ms) == pytest.approx((40.0, 100.0, 100.0))


def test_failure_of_a_request_ends_the_measurement(monkeypatch):
    engine = TimedEngine()
    monkeypatch.setattr(engine, "failure", lambda handle: InvalidInput("text", 1, "no") if handle else None)
    with pytest.raises(InvalidInput):
        lm_engines.run(engine, lm_engines.make_prompts(2, 6561), lm_engines.sampling("ras", 3))
