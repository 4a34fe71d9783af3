"""Draws of a batch against a plain reading of the definition, one row at a time.

Every test draws from logits of numpy and from those of PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.lm import sampling
from cosyvoice_runtime.lm.sampling import NOT_FINITE, Blocked, ExponentialNoise, SamplerState, SamplingOptions
from cosyvoice_runtime.lm.torch import speech_decoder

ROWS = 40
SampleBatch = Callable[..., list[int]]
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


def sample_host(
    logits: torch.Tensor, states: Sequence[SamplerState], blocked: Blocked | None = None
) -> list[int]:
    return sampling.sample_batch(logits.numpy(), states, blocked)


@pytest.fixture(params=[sample_host, speech_decoder.sample_batch], ids=["numpy", "torch"], scope="module")
def sample_batch(request: pytest.FixtureRequest) -> SampleBatch:
    """Draws from tensors by numpy or by PyTorch."""
    draw: SampleBatch = request.param
    return draw


def multinomial(probs: torch.Tensor, generator: torch.Generator) -> int:
    return int((probs / torch.empty(len(probs)).exponential_(generator=generator)).argmax())


def draw_by_definition(logits: torch.Tensor, state: SamplerState, generator: torch.Generator) -> int:
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
    token = int(order[multinomial(probs[:size], generator)])
    rejected = sum(past == token for past in state.history[-options.window :]) >= options.window * options.tau
    if options.strategy == "ras" and rejected:
        scores[token] = -torch.inf
        token = multinomial(scores.softmax(0), generator)
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
    sample_batch: SampleBatch, rows: list[tuple[SamplingOptions, list[int]]], seed: int, ties: bool
) -> None:
    if sample_batch is sample_host:  # of everything, how much is taken is a matter of rounding
        rows = [(dataclasses.replace(options, top_p=min(options.top_p, 0.95)), ids) for options, ids in rows]
    logits = 3 * torch.randn(len(rows), ROWS, generator=torch.Generator().manual_seed(seed))
    if ties:
        logits = logits.round()
    together, alone, plain = make_states(rows), make_states(rows), make_states(rows)
    generators = [torch.Generator().manual_seed(state.seed) for state in plain]
    for _ in range(2):
        tokens = sample_batch(logits, together)
        given = zip(logits, plain, generators, strict=True)
        assert tokens == [draw_by_definition(*each) for each in given]
        assert tokens == [
            sample_batch(row[None], [state])[0] for row, state in zip(logits, alone, strict=True)
        ]
        for states in (together, alone, plain):
            for state, token in zip(states, tokens, strict=True):
                state.history.append(token)


def test_same_seed_same_draws(sample_batch: SampleBatch) -> None:
    logits = torch.randn(1, ROWS)
    first, second = (SamplerState(SamplingOptions(seed=11)) for _ in range(2))
    assert [sample_batch(logits, [first]) for _ in range(50)] == [
        sample_batch(logits, [second]) for _ in range(50)
    ]


def test_fresh_seeds_differ_and_can_be_repeated(sample_batch: SampleBatch) -> None:
    logits = torch.zeros(ROWS)
    state, other = SamplerState(SamplingOptions()), SamplerState(SamplingOptions())
    assert state.seed != other.seed
    again = SamplerState(SamplingOptions(seed=state.seed))
    assert [sample_batch(logits[None], [state])[0] for _ in range(20)] == [
        sample_batch(logits[None], [again])[0] for _ in range(20)
    ]


def test_global_generator_is_left_alone(sample_batch: SampleBatch) -> None:
    before = torch.get_rng_state()
    logits = torch.randn(1, ROWS, generator=torch.Generator().manual_seed(0))
    sample_batch(logits, [SamplerState(SamplingOptions())])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_row_without_a_distribution_is_marked_and_alone(sample_batch: SampleBatch, bad: float) -> None:
    logits = torch.randn(3, ROWS, generator=torch.Generator().manual_seed(1))
    states = make_states([(SamplingOptions(seed=row), []) for row in range(3)])
    expected = sample_batch(logits, make_states([(SamplingOptions(seed=row), []) for row in range(3)]))
    logits[1, 7] = bad
    assert sample_batch(logits, states) == [expected[0], NOT_FINITE, expected[2]]


def test_blocked_control_ids_are_never_drawn(sample_batch: SampleBatch) -> None:
    logits = torch.zeros(2, ROWS)
    logits[:, -3:] = 50.0
    blocked = np.array([[True, True, True], [True, False, True]])
    states = make_states([(SamplingOptions(seed=3), []), (SamplingOptions(seed=4), [])])
    for _ in range(20):
        first, second = sample_batch(logits, states, blocked)
        assert first < ROWS - 3
        assert second == ROWS - 2


def test_input_logits_are_left_as_they_were(sample_batch: SampleBatch) -> None:
    logits = torch.randn(2, ROWS)
    before = logits.clone()
    states = make_states([(SamplingOptions(), [1]), (PENALISED, [2])])
    sample_batch(logits, states, np.ones((2, 3), dtype=bool))
    assert torch.equal(logits, before)


def test_nucleus_measures_top_p_within_top_k(sample_batch: SampleBatch) -> None:
    """Of probabilities .4 .3 .2 .1 the top two hold .7; half of that is the first alone."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    options = SamplingOptions("nucleus", top_k=2, top_p=0.5, seed=0)
    state, over_all = (
        SamplerState(options),
        SamplerState(dataclasses.replace(options, strategy="ras", tau=1.0)),
    )
    assert {sample_batch(logits[None], [state])[0] for _ in range(50)} == {0}
    assert {sample_batch(logits[None], [over_all])[0] for _ in range(50)} == {0, 1}


def test_nucleus_is_measured_within_its_own_top_k(sample_batch: SampleBatch) -> None:
    """A neighbour without a limit on candidates doesn't widen it."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().repeat(2, 1)
    states = [SamplerState(SamplingOptions("nucleus", top_k=k, top_p=0.5, seed=0)) for k in (2, 0)]
    draws = [sample_batch(logits, states) for _ in range(50)]
    assert {first for first, _ in draws} == {0}
    assert {second for _, second in draws} == {0, 1}


@pytest.mark.parametrize("seed", [0, 42, 2**32 + 5, 2**63 - 1])
def test_noise_is_that_of_torch(seed: int) -> None:
    noise, generator = ExponentialNoise(seed), torch.Generator().manual_seed(seed)
    for size in (1, 25, 7, 6564, 1, 20_000):
        drawn = torch.empty(size).exponential_(generator=generator)
        np.testing.assert_array_equal(noise(size), drawn)


def test_candidates_of_numpy_are_those_of_torch() -> None:
    """Ties among them, rows of one value, and more candidates than differ."""
    scores = torch.randn(64, ROWS, generator=torch.Generator().manual_seed(3)).mul(2).round()
    scores[0] = 0.0
    for depth in (1, 7, ROWS):
        probs, ids = sampling.top_candidates(scores.numpy(), depth)
        expected_probs, expected_ids = speech_decoder.top_candidates(scores, depth)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_allclose(probs, expected_probs, rtol=1e-6)
