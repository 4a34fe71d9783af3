from __future__ import annotations

import dataclasses
import importlib.util
import sysconfig
from functools import partial

import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.kernels.choice import encoder_obstacle, solver_obstacle
from cosyvoice_runtime.gpu.kernels.choice import fused_chosen, machine_obstacle
from cosyvoice_runtime.lm.engines.torch import draw_obstacle, step_obstacle
from making.architecture import FULL, TINY
from making.architecture_cosyvoice3 import FULL as COSYVOICE3

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
ESTIMATOR, ENCODER, SPEECH_LM = FULL.flow.estimator, FULL.flow.conformer, FULL.speech_lm
WORK = "steps"


@pytest.fixture
def capability(monkeypatch, tmp_path):
    """A GPU of the capability that it is called with, and all that Triton needs beside it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("CC", "/usr/bin/cc")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: tmp_path)
    (tmp_path / "Python.h").touch()

    def has(*version: int) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: version)

    has(9, 0)
    return has


def test_auto_takes_what_runs():
    assert fused_chosen("auto", WORK, GPU, None)
    assert not fused_chosen("auto", WORK, GPU, "no room")


def test_plain_never_takes_them():
    assert not fused_chosen("plain", WORK, GPU, None)


def test_insisting_where_they_cannot_run_is_an_error():
    assert fused_chosen("fused", WORK, GPU, None)
    with pytest.raises(InvalidInput, match="cannot run: no room"):
        fused_chosen("fused", WORK, GPU, "no room")


def test_an_unknown_word_is_an_error():
    with pytest.raises(InvalidInput, match="auto, fused, plain"):
        fused_chosen("fast", WORK, CPU, "no room")


@pytest.mark.parametrize(
    ("obstacle_of", "dtype", "config"),
    [
        (solver_obstacle, torch.float16, [ESTIMATOR]),
        (solver_obstacle, torch.float16, [COSYVOICE3.flow.estimator]),
        (encoder_obstacle, torch.float16, [ENCODER]),
        (partial(machine_obstacle, wanted=torch.float16), torch.float16, []),
        (step_obstacle, torch.bfloat16, [SPEECH_LM]),
        (step_obstacle, torch.bfloat16, [COSYVOICE3.speech_lm]),
    ],
    ids=["flow", "CosyVoice3's flow", "encoder", "vocoder", "speech LM", "CosyVoice3's speech LM"],
)
def test_kernels_run_on_new_gpus_in_the_type_that_they_are_made_for(capability, obstacle_of, dtype, config):
    assert obstacle_of(GPU, dtype, *config) is None
    assert "need an NVIDIA GPU" in obstacle_of(CPU, dtype, *config)
    assert "not float32" in obstacle_of(GPU, torch.float32, *config)
    capability(8, 0)
    assert obstacle_of(GPU, dtype, *config) is None
    capability(7, 5)
    assert "below 8.0" in obstacle_of(GPU, dtype, *config)


def test_draws_need_a_gpu_that_triton_supports(capability):
    assert draw_obstacle(GPU) is None
    assert "need" in draw_obstacle(CPU)
    capability(7, 5)
    assert "below 8.0" in draw_obstacle(GPU)


@pytest.mark.usefixtures("capability")
def test_what_triton_compiles_with_must_be_there(monkeypatch, tmp_path):
    (tmp_path / "Python.h").unlink()
    assert "no Python.h" in draw_obstacle(GPU)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C compiler" in step_obstacle(GPU, torch.bfloat16, SPEECH_LM)


@pytest.mark.usefixtures("capability")
def test_sizes_that_no_kernel_has_are_an_obstacle():
    odd = dataclasses.replace(ESTIMATOR, channels=192)
    assert "channels of the estimator is 192" in solver_obstacle(GPU, torch.float16, odd)
    odd = dataclasses.replace(COSYVOICE3.flow.estimator, feed_forward_factor=3)
    assert "feed_forward_factor of the estimator is 3" in solver_obstacle(GPU, torch.float16, odd)
    odd = dataclasses.replace(SPEECH_LM, intermediate_size=4872)
    assert "intermediate_size is 4872" in step_obstacle(GPU, torch.bfloat16, odd)
    odd = dataclasses.replace(SPEECH_LM, hidden_size=14 * 96)
    assert "96 values" in step_obstacle(GPU, torch.bfloat16, odd)
    for heads, values in ((64, 8), (16, 32), (4, 128), (1, 512)):
        obstacle = encoder_obstacle(GPU, torch.float16, dataclasses.replace(ENCODER, num_heads=heads))
        assert (obstacle is None) == (values >= 16)
    odd = dataclasses.replace(ENCODER, width=768)
    assert "96 values" in encoder_obstacle(GPU, torch.float16, odd)


def test_the_small_networks_take_them_too(capability):
    assert encoder_obstacle(GPU, torch.float16, TINY.flow.conformer) is None
    assert step_obstacle(GPU, torch.bfloat16, TINY.speech_lm) is None
