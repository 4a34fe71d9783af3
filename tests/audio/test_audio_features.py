from __future__ import annotations

import pytest
import torch
from audio_signals import noise, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.audio.fbank import centred_fbank, fbank
from cosyvoice_runtime.audio.filters import slaney_filters
from cosyvoice_runtime.audio.log_mel import log_mel_spectrogram
from cosyvoice_runtime.audio.mel import mel_spectrogram


@settings(max_examples=25)
@given(count=st.integers(721, 20_000))
def test_frame_counts_follow_the_hops(count: int) -> None:
    samples = noise(count)
    assert mel_spectrogram(samples).shape == (count // 480, 80)
    assert log_mel_spectrogram(samples).shape == (128, count // 160)
    assert fbank(samples).shape == ((count - 400) // 160 + 1, 80)


def test_silence_is_the_floor_of_every_feature() -> None:
    silence = torch.zeros(24_000)
    assert torch.allclose(log_mel_spectrogram(silence), torch.tensor((-10.0 + 4.0) / 4.0))
    assert torch.allclose(fbank(silence), torch.tensor(torch.finfo(torch.float32).eps).log())
    assert mel_spectrogram(silence).isfinite().all()


def test_whisper_range_is_eight_powers_of_ten() -> None:
    log_mel = log_mel_spectrogram(tone(1000, 1.0, 16_000))
    assert log_mel.max() - log_mel.min() == pytest.approx(8.0 / 4.0, abs=1e-6)


def test_loudness_only_shifts_fbank_and_its_mean_removes_the_shift() -> None:
    samples = noise(16_000)
    assert torch.allclose(fbank(2 * samples) - fbank(samples), torch.tensor(4.0).log(), atol=1e-4)
    assert torch.allclose(centred_fbank(2 * samples), centred_fbank(samples), atol=1e-4)
    assert centred_fbank(samples).mean(dim=0).abs().max() < 1e-4


def test_tone_is_loudest_in_its_own_mel_bin() -> None:
    filters = slaney_filters(24_000, 1920, 80, 8000.0)
    for hz in (500.0, 1500.0, 5000.0):
        expected = filters[:, round(hz * 1920 / 24_000)].argmax()
        assert mel_spectrogram(tone(hz, 0.5, 24_000)).mean(dim=0).argmax() == expected


@pytest.mark.parametrize("high_hz", [800.0, 1000.0, 4000.0])
def test_filters_end_at_their_highest_frequency(high_hz: float) -> None:
    filters = slaney_filters(16_000, 2048, 20, high_hz)
    highest = filters.sum(dim=0).nonzero().max() * 16_000 / 2048
    assert high_hz - 20 < highest <= high_hz


@pytest.mark.parametrize(("rate", "size", "bins"), [(24_000, 1920, 80), (16_000, 400, 128)])
def test_filters_have_unit_area(rate: int, size: int, bins: int) -> None:
    filters = slaney_filters(rate, size, bins, 8000.0)
    assert filters.shape == (bins, size // 2 + 1)
    wide = filters[bins // 2 :].sum(dim=1) * (rate / size)  # narrow ones fall between the bins of the FFT
    assert torch.allclose(wide, torch.ones_like(wide), rtol=0.1)
