"""CosyVoice-300M's vocoder against the reference, stage by stage and from mel to waveform."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from goldens import COSYVOICE_300M, Case, Compare

from cosyvoice_runtime.vocoder.torch import HiFT
from cosyvoice_runtime.vocoder.torch.sampled_phase import RandomStart

CONFIG = COSYVOICE_300M.config().vocoder
CASES = COSYVOICE_300M.cases("hift")
WITH_F0 = [case for case in CASES if "f0" in case]
F0, PARTS, WAVE = 1e-3, 1e-4, 2e-3


@cache
def hift() -> HiFT:
    return HiFT.from_tensors(CONFIG, COSYVOICE_300M.tensors("tiny_hift"))


def start_of(case: Case) -> RandomStart:
    if "phase" not in case:
        return RandomStart.silent(CONFIG, case["mel"].shape[2])
    phases = case["phase"][:, :, 0].double()
    phases[:, 0] = 0
    return RandomStart(phases, hift().m_source.merge_noise(case["sine_noise"].transpose(1, 2)))


def source(case: Case, f0: torch.Tensor) -> torch.Tensor:
    start = start_of(case)
    return hift().source(f0.double(), start.noise, start.carry())


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_f0(case: Case, compare: Compare) -> None:
    compare("f0", hift().f0(case["mel"]), case["f0"], F0)


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_source_of_given_f0(case: Case, compare: Compare) -> None:
    compare("s", source(case, case["f0"]), case["s"][:, 0], PARTS)


@pytest.mark.parametrize("case", [case for case in CASES if "s" in case], ids=str)
def test_decode_of_given_source(case: Case, compare: Compare) -> None:
    compare("wav", hift().decode(case["mel"], case["s"][:, 0]), case["wav"], PARTS)


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_mel_to_waveform(case: Case, compare: Compare) -> None:
    wave = hift().decode(case["mel"], source(case, hift().f0(case["mel"])))
    compare("wav", wave, case["wav"], WAVE)


@pytest.mark.parametrize("case", [case for case in CASES if "cache_source" in case], ids=str)
def test_source_that_was_heard_before(case: Case, compare: Compare) -> None:
    own, cached = source(case, hift().f0(case["mel"])), case["cache_source"][:, 0]
    own[:, : cached.shape[1]] = cached
    compare("wav_c", hift().decode(case["mel"], own), case["wav_c"], WAVE)


def test_start_is_the_seeds_and_the_fundamental_begins_at_zero() -> None:
    first, again, other = (
        RandomStart.draw(CONFIG, 3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first.noise, again.noise)
    assert torch.equal(first.phases, again.phases)
    assert not torch.equal(first.noise, other.noise)
    assert first.phases[0, 0] == 0
    assert first.phases[0, 1:].abs().min() > 0
