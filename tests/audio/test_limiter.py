"""True peaks, and a limiter that keeps them down."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.audio.limiter import Limiter
from cosyvoice_runtime.audio.true_peak import true_peak

RATES = (8_000, 16_000, 24_000, 48_000)


def decibels(value: float) -> float:
    return 20 * math.log10(value)


def limited(samples: np.ndarray, rate: int, cuts: list[float] | None = None) -> np.ndarray:
    limiter = Limiter(rate)
    parts = np.split(samples, sorted(round(cut * len(samples)) for cut in cuts or []))
    return np.concatenate([*map(limiter.push, parts), limiter.finish()])


def wild(seed: int, count: int, loudest: float) -> np.ndarray:
    """Bursts of noise, squares and clicks that begin and end anywhere."""
    random = np.random.default_rng(seed)
    levels = np.repeat(random.choice([0, 0.1, 0.5, 1], count // 100 + 1), 100)[:count]
    kinds = (
        random.standard_normal(count) / 3,
        np.sign(np.sin(np.arange(count) * random.uniform(0.01, 3))),
        (random.random(count) > 0.99).astype(float),
    )
    return loudest * levels * kinds[seed % 3]


@pytest.mark.parametrize("degrees", [0, 45, 60, 67.5])
def test_peak_between_samples_is_found(degrees):
    """Signals 15 to 18 of EBU Tech 3341: a quarter of the rate at -6 dBFS, of which +0.2 and -0.4 dB may be
    read."""
    sine = 0.5 * np.sin(2 * np.pi * np.arange(2400) / 4 + math.radians(degrees))
    fade = np.minimum(1, np.minimum(np.arange(2400), np.arange(2400)[::-1]) / 500)
    assert -0.4 <= decibels(true_peak((sine * fade).astype(np.float32))) + 6.0 <= 0.2


def test_samples_below_the_ceiling_stay_bit_for_bit():
    samples = np.random.default_rng(1).uniform(-0.3, 0.3, 24_000).astype(np.float32)
    assert np.array_equal(limited(samples.astype(np.float64), 24_000), samples)


@given(st.integers(0, 999), st.integers(0, 3000), st.floats(0.1, 20), st.sampled_from(RATES))
def test_true_peak_is_below_minus_1(seed, count, loudest, rate):
    samples = wild(seed, count, loudest)
    found = limited(samples, rate)
    assert len(found) == len(samples)
    assert true_peak(found) <= 10 ** (-1 / 20)
    assert np.all(np.abs(found) <= np.abs(samples) + 1e-6)


@given(st.integers(0, 99), st.lists(st.floats(0, 1), max_size=20), st.sampled_from(RATES))
def test_chunks_are_limited_as_the_whole(seed, cuts, rate):
    samples = wild(seed, 2500, 3.0)
    assert np.array_equal(limited(samples, rate, cuts), limited(samples, rate))


@pytest.mark.parametrize("rate", RATES)
def test_little_is_held_back(rate):
    held = 3000 - len(Limiter(rate).push(wild(0, 3000, 3.0)))
    assert held <= 0.0015 * rate + 6


def test_gain_rises_again_behind_a_peak():
    samples = np.full(24_000, 0.4)
    samples[6000] = 2.0
    found = limited(samples, 24_000)
    assert found[6000] < 0.9
    assert found[6100] < 0.3
    assert np.all(np.diff(found[6200:]) >= 0)
    assert found[6000 + 4800] == pytest.approx(0.4)
