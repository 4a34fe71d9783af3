from math import pi

import pytest
import torch
import torch.nn.functional as F

from cosyvoice_runtime.vocoder.torch.source import HarmonicSource, PhaseCarry, Rows
from small_hift import PUBLISHED, small_hift

HOP = PUBLISHED.hop


def first_harmonic() -> HarmonicSource:
    """A source that passes its fundamental through, apart from tanh."""
    source = HarmonicSource(PUBLISHED).requires_grad_(False)
    source.l_linear.weight[:] = F.one_hot(torch.tensor([0]), source.num_sines)
    source.l_linear.bias.zero_()
    return source


def rows(frames: int) -> Rows:
    return Rows.of([frames], torch.device("cpu"))


def test_constant_pitch_is_a_sine_even_after_a_minute() -> None:
    frames, pitch = 3000, 220.3
    f0 = torch.full((1, frames), pitch, dtype=torch.float64)
    samples, _ = first_harmonic()(f0, None, rows(frames))
    # The phase stands still for the first half frame and is that of the first frame's end there.
    time = torch.arange(HOP * frames, dtype=torch.float64) + (HOP + 1) / 2
    expected = torch.tanh(PUBLISHED.sine_amplitude * torch.sin(2 * pi * pitch / PUBLISHED.sample_rate * time))
    inside = slice(HOP, HOP * (frames - 1))
    torch.testing.assert_close(samples[0, inside].double(), expected[inside], atol=2e-6, rtol=0)


def test_carried_phase_continues_the_whole_source() -> None:
    f0 = 100 + 200 * torch.rand(1, 40, dtype=torch.float64)
    source = first_harmonic()
    expected, cycles = source(f0, None, rows(40))
    carry = PhaseCarry(torch.tensor([2]), cycles[:, 17], f0[:, 17])
    found, _ = source(f0[:, 15:], None, rows(25), carry)
    assert torch.equal(found[:, 2 * HOP :], expected[:, 17 * HOP :])


def test_unvoiced_frames_hold_noise_only() -> None:
    f0 = torch.tensor([[200.0, PUBLISHED.voiced_threshold_hz]], dtype=torch.float64)
    source = first_harmonic()
    silent, _ = source(f0, None, rows(2))
    assert silent[0, :HOP].any()
    assert not silent[0, HOP:].any()
    noise = torch.ones(1, 2 * HOP)
    noisy, _ = source(f0, noise, rows(2))
    torch.testing.assert_close(noisy[0, HOP:], torch.full((HOP,), PUBLISHED.sine_amplitude / 3).tanh())


def test_merged_noise_acts_as_noise_on_each_harmonic() -> None:
    source = small_hift().m_source
    f0 = torch.tensor([[200.0, 0.0, 150.0]], dtype=torch.float64)
    noise = torch.randn(1, 3 * HOP, source.num_sines)
    clean, _ = source(f0, None, rows(3))
    voiced = (f0 > PUBLISHED.voiced_threshold_hz).repeat_interleave(HOP, 1)
    amplitude = torch.where(voiced, PUBLISHED.noise_std, PUBLISHED.sine_amplitude / 3)
    expected = torch.tanh(clean.atanh() + amplitude * (noise @ source.l_linear.weight[0]))
    found, _ = source(f0, source.merge_noise(noise), rows(3))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_merged_noise_keeps_unit_variance() -> None:
    noise = torch.randn(1, 100_000, PUBLISHED.num_harmonics + 1, generator=torch.Generator().manual_seed(0))
    assert small_hift().m_source.merge_noise(noise).std().item() == pytest.approx(1, abs=0.01)
