"""Length limits and runaway output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.lm.generation import (
    FinishReason,
    Generation,
    TokenLimits,
    is_runaway,
    runaway_not_before,
)
from cosyvoice_runtime.lm.sampling import SamplingOptions
from making import architecture, architecture_cosyvoice300m

DEFAULT = SamplingOptions()


def test_derived_limits_are_2_and_20_tokens_per_text_token() -> None:
    assert TokenLimits.of(DEFAULT, 7) == (14, 140)


def test_derived_limits_round_down() -> None:
    assert TokenLimits.of(SamplingOptions(min_ratio=1.5, max_ratio=2.5), 3) == (4, 7)


def test_given_limits_stand() -> None:
    assert TokenLimits.of(SamplingOptions(min_tokens=0, max_tokens=9), 7) == (0, 9)


@pytest.mark.parametrize(
    "config", [architecture.TINY, architecture_cosyvoice300m.TINY], ids=["25 Hz", "50 Hz"]
)
def test_pause_of_two_seconds_is_no_runaway_and_one_of_four_is(config: ModelConfig) -> None:
    speech_lm = config.speech_lm
    generation = Generation(speech_lm, SamplingOptions(seed=0), (), TokenLimits(0, 1000), feed=[])
    for token in [*range(60), *[42] * (2 * speech_lm.token_rate)]:
        generation.accept(token)
    assert generation.finish_reason is None
    for _ in range(2 * speech_lm.token_rate):
        generation.accept(42)
    assert generation.finish_reason is FinishReason.REPETITION


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 7))
def test_cycle_that_fills_the_span_is_runaway(cycle: list[int], shift: int) -> None:
    tokens = [9, 9, *(cycle * 60)[shift : shift + 40]]
    assert is_runaway(tokens, span=40, max_period=8)


@given(st.lists(st.integers(0, 1), max_size=24), st.integers(2, 12), st.integers(1, 5))
def test_runaway_equals_its_definition(tokens: list[int], span: int, max_period: int) -> None:
    tail = tokens[-span:]
    cyclic = any(
        all(tail[i] == tail[i - period] for i in range(period, span))
        for period in range(1, min(max_period, span // 2) + 1)
        if len(tail) == span
    )
    assert is_runaway(tokens, span, max_period) == cyclic


@given(
    st.lists(st.integers(0, 1), max_size=16),
    st.lists(st.integers(0, 1), max_size=16),
    st.integers(0, 12),
    st.integers(1, 5),
)
def test_no_runaway_before_it_is_looked_for_again(
    said: list[int], follow: list[int], span: int, max_period: int
) -> None:
    """Whatever follows."""
    first = runaway_not_before(said, span, max_period)
    assert first > len(said) or len(said) == 0
    for count in range(len(said) + 1, min(first, len(said) + len(follow) + 1)):
        assert not is_runaway([*said, *follow][:count], span, max_period)


@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.integers(0, 12),
    st.integers(1, 5),
    st.integers(1, 60),
)
def test_an_utterance_ends_with_the_first_token_that_ends_it(
    tokens: list[int], span: int, max_period: int, most: int
) -> None:
    options = SamplingOptions(seed=0, runaway_span=span, runaway_period=max_period)
    generation = Generation(architecture.TINY.speech_lm, options, (), TokenLimits(0, most), feed=[])
    for count, token in enumerate(tokens, start=1):
        generation.accept(token)
        if is_runaway(tokens[:count], span, max_period):
            assert generation.finish_reason is FinishReason.REPETITION
            return
        if count >= most:
            assert generation.finish_reason is FinishReason.LENGTH
            return
        assert generation.finish_reason is None


def test_cycle_longer_than_the_period_is_no_runaway() -> None:
    assert not is_runaway([*range(9)] * 20, span=100, max_period=8)


def test_span_of_zero_never_ends() -> None:
    assert not is_runaway([1] * 1000, span=0, max_period=8)
