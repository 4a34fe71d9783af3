from __future__ import annotations

import dataclasses
import importlib.util

import pytest
import torch

from cosyvoice_runtime.checkpoint.making.architecture import FULL
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.kernels.choice import fused_chosen

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
ESTIMATOR = FULL.flow.estimator


@pytest.fixture
def capability(monkeypatch):
    """A GPU of the capability that it is called with, and Triton beside it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())

    def has(*version: int) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: version)

    return has


def test_auto_takes_what_runs(capability):
    capability(9, 0)
    assert fused_chosen("auto", GPU, torch.float16, ESTIMATOR)
    assert not fused_chosen("auto", CPU, torch.float16, ESTIMATOR)
    assert not fused_chosen("plain", GPU, torch.float16, ESTIMATOR)
    capability(8, 9)
    assert not fused_chosen("auto", GPU, torch.float16, ESTIMATOR)


def test_other_types_are_computed_plainly(capability):
    capability(9, 0)
    assert not fused_chosen("auto", GPU, torch.float32, ESTIMATOR)


def test_sizes_that_no_kernel_has_are_computed_plainly(capability):
    capability(9, 0)
    assert not fused_chosen("auto", GPU, torch.float16, dataclasses.replace(ESTIMATOR, channels=192))


def test_insisting_where_they_cannot_run_is_an_error():
    with pytest.raises(InvalidInput, match="need an NVIDIA GPU"):
        fused_chosen("fused", CPU, torch.float16, ESTIMATOR)


def test_an_unknown_word_is_an_error():
    with pytest.raises(InvalidInput, match="auto, fused, plain"):
        fused_chosen("fast", CPU, torch.float16, ESTIMATOR)
