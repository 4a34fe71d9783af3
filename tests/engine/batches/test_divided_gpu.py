"""How token2wav has its GPU: divided between the speech LM and itself, or whole."""

from __future__ import annotations

from typing import Any

import pytest

from cosyvoice_runtime.engine.batches.load import shared_gpu
from cosyvoice_runtime.gpu.partitions import division as gpu_division
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from making import make_checkpoint

LM = TensorrtLlmSettings(engine="torch", device="cuda:1", gpu_share=0.2)
GPU = SharedGpu()


@pytest.fixture
def divided(monkeypatch) -> list[Any]:
    """By which GPU and which shares it has been divided."""
    asked: list[Any] = []

    def divide(*arguments: object) -> SharedGpu:
        asked.append(arguments)
        return GPU

    monkeypatch.setattr(gpu_division, "share_gpu", divide)
    return asked


@pytest.fixture
def on_gpu(torch_settings) -> Token2WavSettings:
    return torch_settings.replace(device="cuda:1")


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, (0.2, 0.37)),
        ({"first_chunks_beside": False}, (0.2, 0.0)),
        ({"cuda_graphs": False}, (0.2,)),
    ],
    ids=["captured calls", "no lanes", "no graphs"],
)
def test_gpu_of_the_speech_lm_is_shared_as_the_settings_say(on_gpu, divided, changes, shares):
    assert shared_gpu(LM, on_gpu.replace(**changes)) is GPU
    assert divided == [(1, *shares)]


def test_gpu_is_divided_once_for_a_flow_whose_calls_are_not_captured(on_gpu, divided, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "tiny", "tiny", seed=0, family="cosyvoice300m")
    shared_gpu(LM, on_gpu.replace(checkpoint_dir=checkpoint))
    assert divided == [(1, 0.2)]


@pytest.mark.parametrize(
    ("of_lm", "of_wave"),
    [
        ({"engine": "vllm"}, {}),
        ({"device": "cpu"}, {}),
        ({}, {"backend": "tensorrt"}),
        ({}, {"device": "cpu"}),
    ],
    ids=["vllm", "speech LM on a CPU", "tensorrt", "token2wav on a CPU"],
)
def test_nothing_is_shared_where_torch_does_not_compute_both_on_a_gpu(on_gpu, divided, of_lm, of_wave):
    assert shared_gpu(LM.replace(**of_lm), on_gpu.replace(**of_wave)) is None
    assert divided == []
