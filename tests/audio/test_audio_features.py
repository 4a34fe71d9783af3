from __future__ import annotations

import numpy as np
import pytest
from audio_signals import noise, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.audio.mel import (
    centred_fbank,
    fbank,
    log_mel_spectrogram,
    mel_spectrogram,
    slaney_filters,
)


@settings(max_examples=25)
@given(count=st.integers(721, 20_000))
def test_frame_counts_follow_the_hops(count: int) -> None:
    samples = noise(count)
    assert mel_spectrogram(samples).shape == (count // 480, 80)
    assert log_mel_spectrogram(samples).shape == (128, count // 160)
    assert fbank(samples).shape == ((count - 400) // 160 + 1, 80)


def test_silence_is_the_floor_of_every_feature() -> None:
    silence = np.zeros(24_000, np.float32)
    assert np.allclose(log_mel_spectrogram(silence), (-10.0 + 4.0) / 4.0)
    assert np.allclose(fbank(silence), np.log(np.finfo(np.float32).eps))
    assert np.isfinite(mel_spectrogram(silence)).all()


def test_whisper_range_is_eight_powers_of_ten() -> None:
    log_mel = log_mel_spectrogram(tone(1000, 1.0, 16_000))
    assert log_mel.max() - log_mel.min() == pytest.approx(8.0 / 4.0, abs=1e-6)


def test_loudness_only_shifts_fbank_and_its_mean_removes_the_shift() -> None:
    samples = noise(16_000)
    assert np.allclose(fbank(2 * samples) - fbank(samples), np.log(4.0), atol=1e-4)
    assert np.allclose(centred_fbank(2 * samples), centred_fbank(samples), atol=1e-4)
    assert np.abs(centred_fbank(samples).mean(axis=0)).max() < 1e-4


def test_tone_is_loudest_in_its_own_mel_bin() -> None:
    filters = slaney_filters(24_000, 1920, 80, 8000.0)
    for hz in (500.0, 1500.0, 5000.0):
        expected = filters[:, round(hz * 1920 / 24_000)].argmax()
        assert mel_spectrogram(tone(hz, 0.5, 24_000)).mean(axis=0).argmax() == expected


@pytest.mark.parametrize("high_hz", [800.0, 1000.0, 4000.0])
def test_filters_end_at_their_highest_frequency(high_hz: float) -> None:
    filters = slaney_filters(16_000, 2048, 20, high_hz)
    highest = filters.sum(axis=0).nonzero()[0].max() * 16_000 / 2048
    assert high_hz - 20 < highest <= high_hz


@pytest.mark.parametrize(("rate", "size", "bins"), [(24_000, 1920, 80), (16_000, 400, 128)])
def test_filters_have_unit_area(rate: int, size: int, bins: int) -> None:
    filters = slaney_filters(rate, size, bins, 8000.0)
    assert filters.shape == (bins, size // 2 + 1)
    wide = filters[bins // 2 :].sum(axis=1) * (rate / size)  # narrow ones fall between the bins of the FFT
    assert np.allclose(wide, 1, rtol=0.1)
