"""Graphs of steps on a divided GPU: which are captured at once, and which beside work, with stand-ins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cosyvoice_runtime.gpu.partitions.division import GpuDivision
from cosyvoice_runtime.lm.engines import torch as torch_engine
from cosyvoice_runtime.lm.engines.torch import StepStreams

NAMES = ("many", "few")


class Capture:
    """Notes what is captured where."""

    def __init__(self, device: object, stream: object) -> None:
        self.name = stream.name

    def __call__(self, compute, warm_up=None):
        return self._captured(compute)

    def unrun(self, compute):
        return self._captured(compute)

    def _captured(self, compute):
        compute(self.name)
        return SimpleNamespace(replay=lambda: None, result=self.name)


@pytest.fixture
def gpu(monkeypatch) -> GpuDivision:
    monkeypatch.setattr(torch_engine, "CudaGraphCapture", Capture)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream("whole"))
    parts = [SimpleNamespace(stream=stream(name)) for name in NAMES]
    return GpuDivision(SimpleNamespace(all_for_steps=parts))


def stream(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, synchronize=lambda: None)


def engine(gpu: GpuDivision, captured: list[str]) -> StepStreams:
    """One that captures a step."""
    streams = StepStreams(torch.device("cuda", 0), gpu)
    streams.capture(Capture(None, stream("whole")))(captured.append)
    return streams


def test_graphs_for_few_are_captured_when_they_are_asked_for(gpu):
    captured: list[str] = []
    engine(gpu, captured)
    assert captured == ["whole", "many"]
    [later] = gpu.take_later()
    later(lambda: None)
    assert captured == ["whole", "many", "few"]


def test_an_engine_in_the_place_of_a_broken_one_has_all_of_its_graphs(gpu):
    broken: list[str] = []
    first = engine(gpu, broken)
    [later] = gpu.take_later()
    first.close()
    captured: list[str] = []
    engine(gpu, captured)
    assert captured == ["whole", "many", "few"]
    later(lambda: None)
    assert broken == ["whole", "many"]


def test_an_engine_that_breaks_before_anything_is_prepared_is_forgotten(gpu):
    broken: list[str] = []
    engine(gpu, broken).close()
    captured: list[str] = []
    engine(gpu, captured)
    [later] = gpu.take_later()
    later(lambda: None)
    assert (broken, captured) == (["whole", "many"], ["whole", "many", "few"])
