"""The numbers that torch draws on this machine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosyvoice_runtime.flow.torch.solver import start_noise
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES
from cosyvoice_runtime.onnx.torch_random import TorchRandom
from cosyvoice_runtime.vocoder.state import SourceNoise
from cosyvoice_runtime.vocoder.torch import source_noise

SEEDS = [0, 1, 2**32 - 1, 2**32 + 7, 2**63 - 1]
BINS = 80
avx2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="torch rounds otherwise where it finds no AVX2",
)


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_numbers_are_torchs(seed):
    expected = torch.Generator().manual_seed(seed)
    drawn = TorchRandom(seed)
    for count in (1, 7, 1000):
        np.testing.assert_array_equal(drawn.uniform(count), torch.rand(count, generator=expected).numpy())


@avx2
@pytest.mark.parametrize("seed", SEEDS)
def test_normal_numbers_are_torchs_bit_for_bit(seed):
    expected = torch.Generator().manual_seed(seed)
    drawn = TorchRandom(seed)
    for count in (16, 480, 48_000):
        np.testing.assert_array_equal(drawn.normal(count), torch.randn(count, generator=expected).numpy())


@avx2
def test_start_noise_is_the_published_one():
    drawn = TorchRandom(0).normal(BINS * MAX_FRAMES).reshape(BINS, MAX_FRAMES).T
    np.testing.assert_array_equal(drawn, start_noise(BINS).numpy())


@avx2
def test_noise_of_an_utterance_is_the_same_however_it_is_asked_for():
    ours, torchs = SourceNoise(30, TorchRandom(5).normal), source_noise(5, 30)
    for peeked, skipped in ((3, 2), (7, 7), (0, 0), (4, 1)):
        np.testing.assert_array_equal(ours.peek(peeked), torchs.peek(peeked))
        ours.skip(skipped)
        torchs.skip(skipped)
    mark = ours.mark()
    first = ours.peek(9)
    ours.skip(6)
    ours.rewind(mark)
    np.testing.assert_array_equal(ours.peek(9), first)
