"""Speech at the loudness that is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.audio.levelling import StreamLeveller, check_target, make_leveller
from cosyvoice_runtime.audio.loudness import LoudnessMeter
from cosyvoice_runtime.audio.true_peak import true_peak
from cosyvoice_runtime.errors import InvalidInput

RATE = 24_000


def speech(seconds: float, lufs: float = -27.0, rate: int = RATE, seed: int = 0) -> np.ndarray:
    """Noise in syllables of 200 ms and pauses of half a second, of this loudness."""
    count = round(seconds * rate)
    time = np.arange(count) / rate
    envelope = np.abs(np.sin(2 * np.pi * 2.5 * time)) * (time % 3 < 2.5)
    samples = np.convolve(np.random.default_rng(seed).standard_normal(count), np.ones(8) / 8, "same")
    samples = (0.1 * envelope * samples).astype(np.float32)
    return (samples * 10 ** ((lufs - loudness(samples, rate)) / 20)).astype(np.float32)


def loudness(samples: np.ndarray, rate: int = RATE) -> float:
    meter = LoudnessMeter(rate)
    meter.push(samples)
    return meter.integrated


def levelled(samples, target, *, whole, cuts=(), rate=RATE):
    leveller = make_leveller(rate, target, whole=whole)
    parts = np.split(samples, sorted(round(cut * len(samples)) for cut in cuts))
    return np.concatenate([*map(leveller.push, parts), leveller.finish()])


@pytest.mark.parametrize("rate", [8_000, 16_000, RATE, 48_000])
@pytest.mark.parametrize("target", [-30.0, -23.0, -16.0])
def test_whole_answer_meets_the_target(target, rate):
    found = levelled(speech(4, rate=rate), target, whole=True, rate=rate)
    assert loudness(found, rate) == pytest.approx(target, abs=0.3)


@pytest.mark.parametrize("target", [-30.0, -24.0])
def test_whole_answer_gets_one_gain(target):
    samples = speech(4)
    gain = 10 ** ((target - loudness(samples)) / 20)
    np.testing.assert_allclose(levelled(samples, target, whole=True), samples * gain, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("lufs", [-38.0, -27.0, -12.0])
def test_stream_comes_to_the_target(lufs):
    found = levelled(speech(12, lufs), -20.0, whole=False)
    assert loudness(found[-4 * RATE :]) == pytest.approx(-20.0, abs=0.7)


@given(
    st.integers(0, 9), st.lists(st.floats(0, 1), max_size=20), st.booleans(), st.sampled_from([8_000, RATE])
)
def test_chunks_are_levelled_as_the_whole(seed, cuts, whole, rate):
    samples = speech(1.3, seed=seed, rate=rate)
    expected = levelled(samples, -14.0, whole=whole, rate=rate)
    assert np.array_equal(levelled(samples, -14.0, whole=whole, cuts=cuts, rate=rate), expected)
    assert len(expected) == len(samples)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("lufs", [-30.0, -9.0])
def test_true_peak_is_below_minus_1(lufs, whole):
    assert true_peak(levelled(speech(4, lufs), -10.0, whole=whole)) <= 10 ** (-1 / 20)


def test_gain_of_a_stream_moves_slowly_and_stands_in_silence():
    samples = np.concatenate([speech(2.5), np.zeros(RATE, np.float32), speech(2.5)])
    carrier = samples + np.float32(1e-5)  # of which the gain can be read in silence, too
    found = levelled(carrier, -20.0, whole=False)
    gains = 20 * np.log10(np.abs(found) / np.abs(carrier))
    moves = np.abs(gains[2400:] - gains[:-2400])
    assert moves.max() <= 0.6 + 1e-3
    assert gains[:2400] == pytest.approx(0, abs=1e-3)
    silence = gains[round(2.8 * RATE) : round(3.4 * RATE)]
    assert silence == pytest.approx(silence[0], abs=1e-2)
    assert silence[0] > 4


@pytest.mark.parametrize("whole", [False, True])
def test_silence_and_nothing_are_left_as_they_are(whole):
    for samples in (np.zeros(0, np.float32), np.zeros(5000, np.float32)):
        assert np.array_equal(levelled(samples, -20.0, whole=whole), samples)


def test_faint_noise_is_raised_by_24_db_at_most():
    noise = (1e-3 * np.random.default_rng(0).standard_normal(RATE)).astype(np.float32)
    found = levelled(noise, -10.0, whole=True)
    np.testing.assert_allclose(found, noise * 10 ** (24 / 20), rtol=1e-5)


def test_stream_holds_back_what_the_limiter_does():
    assert len(StreamLeveller(RATE, -20.0).push(speech(1))) >= RATE - 42


@pytest.mark.parametrize("target", [-40.1, -9.9, float("nan")])
def test_target_out_of_range_is_refused(target):
    with pytest.raises(InvalidInput, match="target_lufs"):
        check_target(target)
