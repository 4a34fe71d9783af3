"""Loudness, against values that ITU-R BS.1770 and EBU Tech 3341 tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.audio.k_weighting import KWeighting, high_pass, high_shelf
from cosyvoice_runtime.audio.loudness import LoudnessMeter

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
MONO_DB = 3.01
"""Tech 3341's signals are stereo, in which the same sine in both channels is so much louder."""


def sine(*parts: tuple[float, float], rate: int = 24_000, hertz: float = 1000) -> np.ndarray:
    """A sine of these decibels below full scale for these seconds each."""
    levels = np.concatenate([np.full(round(seconds * rate), 10 ** (level / 20)) for level, seconds in parts])
    return (levels * np.sin(2 * np.pi * hertz * np.arange(len(levels)) / rate)).astype(np.float32)


def integrated(samples: np.ndarray, rate: int = 24_000) -> float:
    meter = LoudnessMeter(rate)
    meter.push(samples)
    return meter.integrated


def test_filters_at_48_khz_are_those_of_the_recommendation():
    """Tables 1 and 2 of BS.1770-5."""
    shelf = [1.53512485958697, -2.69169618940638, 1.19839281085285], [1, -1.69065929318241, 0.73248077421585]
    np.testing.assert_allclose(high_shelf(48_000), shelf, atol=1e-8)
    np.testing.assert_allclose(high_pass(48_000)[1], [1, -1.99004745483398, 0.99007225036621], atol=1e-8)
    assert list(high_pass(48_000)[0]) == [1, -2, 1]


@pytest.mark.parametrize("rate", RATES)
def test_rows_are_filtered_as_the_biquads_say(rate):
    samples = np.random.default_rng(rate).standard_normal(3 * rate // 10).astype(np.float32)
    expected = samples.astype(np.float64)
    for numerator, denominator in (high_shelf(rate), high_pass(rate)):
        filtered = np.zeros(len(expected) + 2)
        padded = np.pad(expected, (2, 0))
        for at in range(2, len(padded)):
            past = padded[at - 2 : at + 1][::-1] @ numerator
            filtered[at] = past - filtered[at - 1] * denominator[1] - filtered[at - 2] * denominator[2]
        expected = filtered[2:]
    weighting = KWeighting(rate, rate // 10)
    found = np.concatenate([weighting.filter(part) for part in np.split(samples, 3)])
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("rate", RATES)
def test_sine_at_full_scale_is_minus_3_01(rate):
    """BS.1770-5, annex 1; Tech 3341 lets a meter be 0.1 LU off."""
    assert integrated(sine((0, 4), rate=rate, hertz=997), rate) == pytest.approx(-3.01, abs=0.05)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(-23, 20)], -23),
        ([(-33, 20)], -33),
        ([(-36, 10), (-23, 60), (-36, 10)], -23),
        ([(-72, 10), (-36, 10), (-23, 60), (-36, 10), (-72, 10)], -23),
        ([(-26, 20), (-20, 20.1), (-26, 20)], -23),
    ],
)
def test_quiet_parts_count_as_in_the_signals_of_the_ebu(parts, expected):
    """Test signals 1 to 5 of Tech 3341, of which meters may be 0.1 LU off."""
    samples = sine(*((level + MONO_DB, seconds) for level, seconds in parts))
    assert integrated(samples) == pytest.approx(expected, abs=0.1)


def test_silence_has_no_loudness():
    assert integrated(np.zeros(48_000, np.float32)) == -math.inf
    assert integrated(np.zeros(0, np.float32)) == -math.inf


def test_word_shorter_than_a_block_is_measured():
    assert integrated(sine((-20, 0.3))) == pytest.approx(-23.0, abs=0.2)


@given(st.lists(st.integers(0, 9000), max_size=12))
def test_chunks_measure_as_the_whole(cuts):
    samples = sine((-20, 0.2), (-50, 0.1), (-12, 0.1))
    meter = LoudnessMeter(24_000)
    for part in np.split(samples, sorted(cuts)):
        meter.push(part)
    assert meter.integrated == integrated(samples)


def test_silence_is_what_is_10_lu_below_the_speech():
    meter = LoudnessMeter(24_000)
    assert meter.is_silent
    for level, silent in ((-20, False), (-35, True), (-20, False)):
        meter.push(sine((level, 0.5)))
        assert meter.is_silent is silent
