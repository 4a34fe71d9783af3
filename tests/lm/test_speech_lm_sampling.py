"""Draws of a batch against a plain reading of the definition, one row at a time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.lm.sampling import NOT_FINITE, SamplerState, SamplingOptions, sample, sample_batch

ROWS = 40
PENALISED = SamplingOptions("nucleus", 50, 0.95, 0.8, 1.1, seed=42)

options_strategy = st.builds(
    SamplingOptions,
    strategy=st.sampled_from(["ras", "nucleus", "greedy"]),
    top_k=st.sampled_from([0, 1, 3, 25, 100]),
    top_p=st.sampled_from([0.1, 0.8, 0.95, 1.0]),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    window=st.sampled_from([1, 10]),
    tau=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 1000),
)
history_strategy = st.lists(st.integers(0, ROWS - 1), max_size=15)


def multinomial(probs: torch.Tensor, generator: torch.Generator) -> int:
    return int((probs / torch.empty(len(probs)).exponential_(generator=generator)).argmax())


def draw_by_definition(logits: torch.Tensor, state: SamplerState) -> int:
    options = state.options
    logits = logits / options.temperature
    seen = [*state.prompt, *state.history]
    penalised = torch.where(
        logits < 0, logits * options.repetition_penalty, logits / options.repetition_penalty
    )
    logits = torch.where(torch.isin(torch.arange(ROWS), torch.tensor(seen)), penalised, logits)
    scores = logits.log_softmax(0)
    probs, order = scores.softmax(0).sort(descending=True, stable=True)
    if options.strategy == "greedy":
        return int(order[0])
    probs = probs[: options.top_k or ROWS]
    total, reached, size = np.float32(0), np.float32(0), 0
    for prob in probs.numpy():
        total += prob
    if options.strategy == "ras":
        total = np.float32(1)
    while size < len(probs) and reached < np.float32(options.top_p) * total:
        reached += probs[size].numpy()
        size += 1
    token = int(order[multinomial(probs[:size], state.generator)])
    rejected = sum(past == token for past in state.history[-options.window :]) >= options.window * options.tau
    if options.strategy == "ras" and rejected:
        scores[token] = -torch.inf
        token = multinomial(scores.softmax(0), state.generator)
    return token


def make_states(rows: list[tuple[SamplingOptions, list[int]]]) -> list[SamplerState]:
    states = []
    for options, history in rows:
        state = SamplerState(options, prompt=[1, 2])
        state.history = list(history)
        states.append(state)
    return states


@given(
    st.lists(st.tuples(options_strategy, history_strategy), min_size=1, max_size=8),
    st.integers(0, 10_000),
    st.booleans(),
)
@settings(max_examples=150)
def test_batch_row_draws_what_the_definition_says(
    rows: list[tuple[SamplingOptions, list[int]]], seed: int, ties: bool
) -> None:
    logits = 3 * torch.randn(len(rows), ROWS, generator=torch.Generator().manual_seed(seed))
    if ties:
        logits = logits.round()
    together, alone, plain = make_states(rows), make_states(rows), make_states(rows)
    for _ in range(2):
        tokens = sample_batch(logits, together)
        assert tokens == [draw_by_definition(row, state) for row, state in zip(logits, plain, strict=True)]
        assert tokens == [sample(row, state) for row, state in zip(logits, alone, strict=True)]
        for states in (together, alone, plain):
            for state, token in zip(states, tokens, strict=True):
                state.history.append(token)


def test_same_seed_same_draws() -> None:
    logits = torch.randn(ROWS)
    first, second = (SamplerState(SamplingOptions(seed=11)) for _ in range(2))
    assert [sample(logits, first) for _ in range(50)] == [sample(logits, second) for _ in range(50)]


def test_fresh_seeds_differ_and_can_be_repeated() -> None:
    logits = torch.zeros(ROWS)
    state, other = SamplerState(SamplingOptions()), SamplerState(SamplingOptions())
    assert state.seed != other.seed
    again = SamplerState(SamplingOptions(seed=state.seed))
    assert [sample(logits, state) for _ in range(20)] == [sample(logits, again) for _ in range(20)]


def test_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    sample(torch.randn(ROWS, generator=torch.Generator().manual_seed(0)), SamplerState(SamplingOptions()))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_row_without_a_distribution_is_marked_and_alone(bad: float) -> None:
    logits = torch.randn(3, ROWS, generator=torch.Generator().manual_seed(1))
    states = make_states([(SamplingOptions(seed=row), []) for row in range(3)])
    expected = sample_batch(logits, make_states([(SamplingOptions(seed=row), []) for row in range(3)]))
    logits[1, 7] = bad
    assert sample_batch(logits, states) == [expected[0], NOT_FINITE, expected[2]]


def test_blocked_control_ids_are_never_drawn() -> None:
    logits = torch.zeros(2, ROWS)
    logits[:, -3:] = 50.0
    blocked = torch.tensor([[True, True, True], [True, False, True]])
    states = make_states([(SamplingOptions(seed=3), []), (SamplingOptions(seed=4), [])])
    for _ in range(20):
        first, second = sample_batch(logits, states, blocked)
        assert first < ROWS - 3
        assert second == ROWS - 2


def test_input_logits_are_left_as_they_were() -> None:
    logits = torch.randn(2, ROWS)
    before = logits.clone()
    states = make_states([(SamplingOptions(), [1]), (PENALISED, [2])])
    sample_batch(logits, states, torch.ones(2, 3, dtype=torch.bool))
    assert torch.equal(logits, before)


def test_nucleus_measures_top_p_within_top_k() -> None:
    """Of probabilities .4 .3 .2 .1 the top two hold .7; half of that is the first alone."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    options = SamplingOptions("nucleus", top_k=2, top_p=0.5, seed=0)
    state, over_all = (
        SamplerState(options),
        SamplerState(dataclasses.replace(options, strategy="ras", tau=1.0)),
    )
    assert {sample(logits, state) for _ in range(50)} == {0}
    assert {sample(logits, over_all) for _ in range(50)} == {0, 1}


def test_nucleus_is_measured_within_its_own_top_k() -> None:
    """A neighbour without a limit on candidates doesn't widen it."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().repeat(2, 1)
    states = [SamplerState(SamplingOptions("nucleus", top_k=k, top_p=0.5, seed=0)) for k in (2, 0)]
    draws = [sample_batch(logits, states) for _ in range(50)]
    assert {first for first, _ in draws} == {0}
    assert {second for _, second in draws} == {0, 1}
