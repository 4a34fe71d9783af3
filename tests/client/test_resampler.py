"""A change of the rate that doesn't depend on how the speech comes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_client import AudioChunk
from cosyvoice_client.encoders import ANY_RATE
from cosyvoice_client.resampler import StreamResampler, at_rate

SPOKEN = (22_050, 24_000)


def noise(count: int) -> np.ndarray:
    return (0.2 * np.random.default_rng(count).standard_normal(count)).astype(np.float32)


def sine(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def converted(samples: np.ndarray, rate: int, new_rate: int, cuts: list[float] | None = None) -> np.ndarray:
    resampler = StreamResampler(rate, new_rate)
    parts = np.split(samples, sorted(round(cut * len(samples)) for cut in cuts or []))
    return np.concatenate([*map(resampler.push, parts), resampler.finish()])


@given(
    st.integers(0, 3000),
    st.lists(st.floats(0, 1), max_size=40),
    st.sampled_from(SPOKEN),
    st.sampled_from(ANY_RATE),
)
def test_chunks_are_the_whole_sample_by_sample(count, cuts, rate, new_rate):
    samples = noise(count)
    whole = converted(samples, rate, new_rate)
    assert np.array_equal(converted(samples, rate, new_rate, cuts), whole)
    assert len(whole) == math.ceil(count * new_rate / rate)


@given(st.integers(1, 3000), st.sampled_from(SPOKEN), st.sampled_from(ANY_RATE))
def test_no_more_is_held_back_than_half_of_the_filter(count, rate, new_rate):
    resampler = StreamResampler(rate, new_rate)
    given_s = len(resampler.push(noise(count))) / new_rate
    assert given_s >= count / rate - resampler.delay_s - 1e-9
    assert resampler.delay_s <= 25.2 / (min(rate, new_rate) / 2) + 1 / rate


@pytest.mark.parametrize(("rate", "most_ms"), [(8_000, 6.3), (16_000, 3.2), (48_000, 2.2)])
def test_delay_is_as_the_page_says(rate, most_ms):
    assert 1000 * StreamResampler(24_000, rate).delay_s <= most_ms


@pytest.mark.parametrize("rate", SPOKEN)
@pytest.mark.parametrize("new_rate", ANY_RATE)
def test_what_both_rates_hold_stays_as_it_is(rate, new_rate):
    for share in (0.05, 0.5, 0.89):
        hertz = share * min(rate, new_rate) / 2
        found, expected = converted(sine(hertz, rate), rate, new_rate), sine(hertz, new_rate)
        inner = slice(new_rate // 50, new_rate // 3)
        assert np.abs(found[inner] - expected[inner]).max() < 3e-4


@pytest.mark.parametrize(("new_rate", "hertz"), [(8_000, 4_100), (8_000, 11_000), (16_000, 8_200)])
def test_what_the_lower_rate_can_t_hold_is_80_db_down(new_rate, hertz):
    found = converted(sine(hertz, 24_000), 24_000, new_rate)[new_rate // 50 : -new_rate // 50]
    assert 20 * math.log10(np.abs(found).max() / 0.5) < -79


def test_chunks_of_an_utterance_keep_what_they_say():
    samples = noise(4800)
    chunks = [
        AudioChunk(samples[:1000], 0.1),
        AudioChunk(samples[1000:3000], 0.2, "stop", 5),
        AudioChunk(samples[3000:], 0.3),
    ]
    found = list(at_rate(chunks, 8_000))
    assert [(each.finish_reason, each.spoken_characters) for each in found[:3]] == [
        ("", None),
        ("stop", 5),
        ("", None),
    ]
    assert {each.sample_rate for each in found} == {8_000}
    first, second = (np.concatenate([each.samples for each in part]) for part in (found[:2], found[2:]))
    assert np.array_equal(first, converted(samples[:3000], 24_000, 8_000))
    assert np.array_equal(second, converted(samples[3000:], 24_000, 8_000))


def test_chunks_of_the_rate_are_left_alone():
    chunks = [AudioChunk(noise(100), 0.1)]
    assert list(at_rate(chunks, 24_000)) == list(at_rate(chunks, None)) == chunks
