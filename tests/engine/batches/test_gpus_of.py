"""How token2wav has each of its GPUs: with the speech LM, divided for turns of its own, or whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cosyvoice_runtime.engine.batches.load import gpus_of, shared_gpus
from cosyvoice_runtime.gpu.partitions import division as gpu_division
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from making import make_checkpoint

TWO = {"device": "cuda:0,cuda:1"}
WHOLE = SharedGpu()
"""Of the speech LM and token2wav, in these tests."""


@pytest.fixture
def divisions(monkeypatch) -> list[tuple[str, Any]]:
    """What has been divided, and how."""
    asked: list[tuple[str, Any]] = []

    def noted(name: str) -> Callable[..., SharedGpu]:
        def divide(*arguments: object) -> SharedGpu:
            asked.append((name, arguments))
            return SharedGpu()

        return divide

    monkeypatch.setattr(gpu_division, "own_gpu", noted("own"))
    monkeypatch.setattr(gpu_division, "share_gpu", noted("shared"))
    return asked


@pytest.fixture
def of_two(torch_settings) -> Token2WavSettings:
    return torch_settings.replace(**TWO)


def test_gpu_without_the_speech_lm_is_divided_and_the_other_is_shared(of_two, divisions):
    first, second = gpus_of(of_two, {0: WHOLE})
    assert first is WHOLE
    assert second is not WHOLE
    assert divisions == [("own", (1, 0.25))]


def test_every_gpu_is_divided_where_the_speech_lm_is_on_none(of_two, divisions):
    gpus_of(of_two, {})
    assert divisions == [("own", (0, 0.25)), ("own", (1, 0.25))]


@pytest.mark.parametrize(
    "changes",
    [
        {"first_chunks_beside": False},
        {"cuda_graphs": False},
        {"backend": "tensorrt"},
        {"device": "cpu"},
    ],
    ids=["no lanes", "no graphs", "engines", "no GPU"],
)
def test_gpu_is_whole_where_nothing_computes_beside_turns(of_two, divisions, changes):
    gpus = gpus_of(of_two.replace(**changes), {})
    assert all(type(gpu) is SharedGpu for gpu in gpus)
    assert divisions == []


def test_gpu_is_whole_for_a_flow_whose_calls_are_not_captured(of_two, divisions, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "tiny", "tiny", seed=0, family="cosyvoice300m")
    gpus_of(of_two.replace(checkpoint_dir=checkpoint), {})
    assert divisions == []


def test_gpu_of_the_speech_lm_is_shared_as_the_settings_say(of_two, divisions):
    lm = TensorrtLlmSettings(engine="torch", device="cuda:1", gpu_share=0.2)
    assert [*shared_gpus(lm, of_two)] == [1]
    assert [*shared_gpus(lm, of_two.replace(cuda_graphs=False))] == [1]
    undivided = of_two.replace(first_chunks_beside=False)
    assert [*shared_gpus(lm, undivided)] == [1]
    assert divisions == [("shared", (1, 0.2, 0.37)), ("shared", (1, 0.2)), ("shared", (1, 0.2, 0.0))]


@pytest.mark.parametrize("changes", [{"engine": "vllm"}, {"device": "cuda:2"}])
def test_nothing_is_shared_with_a_speech_lm_that_does_not_divide_a_gpu(of_two, divisions, changes):
    lm = TensorrtLlmSettings(engine="torch", device="cuda:1").replace(**changes)
    assert [*shared_gpus(lm, of_two)] == []
    assert divisions == []


def test_nothing_is_shared_with_a_speech_lm_on_a_cpu(of_two, divisions):
    assert [*shared_gpus(TensorrtLlmSettings(device="cpu"), of_two)] == []
    assert divisions == []
