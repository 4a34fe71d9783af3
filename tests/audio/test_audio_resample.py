from __future__ import annotations

import math

import numpy as np
import pytest
from audio_signals import noise, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.audio.resample import resample

RATES = st.sampled_from([16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 11_025, 96_000, 16_001])
EDGE_SECONDS = 0.01


@settings(max_examples=30)
@given(rate=RATES, new_rate=RATES, count=st.integers(1, 5000))
def test_length_is_the_rounded_up_ratio(rate: int, new_rate: int, count: int) -> None:
    resampled = resample(noise(count), rate, new_rate)
    assert resampled.shape == (math.ceil(count * new_rate / rate),)
    assert resampled.dtype == np.float32


def test_same_rate_changes_nothing() -> None:
    samples = noise(1000)
    assert np.array_equal(resample(samples, 16_000, 16_000), samples)


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000, 47_999])
@pytest.mark.parametrize("new_rate", [16_000, 24_000])
@pytest.mark.parametrize("hz", [100, 1000, 4000])
def test_tone_stays_the_same_tone(rate: int, new_rate: int, hz: int) -> None:
    resampled, expected = resample(tone(hz, 0.5, rate), rate, new_rate), tone(hz, 0.5, new_rate)
    edge = round(EDGE_SECONDS * new_rate)
    error = (resampled[: len(expected)] - expected)[edge:-edge]
    assert np.abs(error).max() < 0.003 * np.abs(expected).max()  # -50 dB


@pytest.mark.parametrize(("rate", "hz"), [(24_000, 10_500), (48_000, 12_000), (44_100, 18_000)])
def test_what_the_lower_rate_cannot_hold_is_gone(rate: int, hz: int) -> None:
    samples = tone(hz, 0.5, rate)
    edge = round(EDGE_SECONDS * 16_000)
    assert np.abs(resample(samples, rate, 16_000)[edge:-edge]).max() < 0.01 * np.abs(samples).max()  # -40 dB


def test_unusual_ratio_equals_interpolation_by_definition() -> None:
    rate, new_rate, zero_crossings, rolloff = 16_001, 24_000, 6, 0.99
    samples = noise(400)
    positions = np.arange(600)[:, None] * rate / new_rate
    distance = (np.arange(400) - positions) * rolloff
    cosine = np.cos(math.pi * distance / 2 / zero_crossings)
    window = np.where(np.abs(distance) < zero_crossings, np.square(cosine), 0.0)
    expected = (rolloff * np.sinc(distance) * window * samples).sum(axis=1)
    assert np.allclose(resample(samples, rate, new_rate), expected, atol=1e-6)
