"""Draws of slots against a plain reading, and their distribution against the definition's probabilities."""

from __future__ import annotations

import dataclasses
from collections import Counter
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm.generation import Generation, TokenLimits
from cosyvoice_runtime.lm.sampling import NOT_FINITE, SamplingOptions
from cosyvoice_runtime.lm.text_stream import TextStream
from cosyvoice_runtime.lm.torch.slot_draws import SlotTables, SlotWork, draw_plain
from counted_draws import counted_draw
from examples import examples

MAX_LEN = 16
SPEECH = 37


@pytest.fixture(scope="module")
def small(config: SpeechLMConfig) -> SpeechLMConfig:
    return dataclasses.replace(config, speech_tokens=SPEECH)


options_strategy = st.builds(
    SamplingOptions,
    strategy=st.sampled_from(["ras", "nucleus", "greedy"]),
    top_k=st.sampled_from([0, 1, 3, 25, 100, 10**30]),
    top_p=st.sampled_from([0.13, 0.83, 0.957, 1.0]),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    window=st.sampled_from([1, 10, 50]),
    tau=st.sampled_from([0.0, 0.1, 0.25, 1.0]),
    upstream_min_length_mask=st.booleans(),
    seed=st.one_of(st.integers(0, 5), st.integers(0, 2**63 - 1)),
)


class Case(NamedTuple):
    """A sequence with something behind it."""

    options: SamplingOptions
    history: list[int]
    least: int
    streamed: bool

    def sequence(self, config: SpeechLMConfig, slot: int) -> Generation:
        sequence = started(
            config, self.options, slot, self.least, TextStream(config) if self.streamed else None
        )
        sequence.sampler.history += self.history
        sequence.tokens += self.history
        return sequence


def started(
    config: SpeechLMConfig,
    options: SamplingOptions,
    slot: int = 0,
    least: int = 0,
    stream: TextStream | None = None,
) -> Generation:
    """A sequence whose prompt is fed."""
    sequence = Generation(config, options, [1, 2], TokenLimits(least, 1000), stream=stream)
    sequence.slot = slot
    if stream is not None:
        stream.push([1] * 5)
        stream.take()
    return sequence


cases = st.builds(
    Case,
    options_strategy,
    st.lists(st.integers(0, SPEECH - 1), max_size=45),
    st.integers(0, 50),
    st.booleans(),
)


def tables_of(config: SpeechLMConfig, sequences: list[Generation], slots: int) -> SlotTables:
    tables = SlotTables(config, slots, MAX_LEN, torch.device("cpu"))
    tables.set(torch.tensor([sequence.slot for sequence in sequences]), sequences)
    return tables


def draw_for(
    tables: SlotTables, sequences: list[Generation], logits: Tensor, work: SlotWork = SlotWork.DRAW
) -> list[int]:
    slots = torch.tensor([sequence.slot for sequence in sequences])
    return draw_plain(logits, slots, torch.full_like(slots, work), tables).tolist()


@given(st.lists(cases, min_size=1, max_size=5), st.integers(0, 10_000), st.booleans())
@settings(max_examples=examples(30, fresh=120))
def test_slots_draw_what_the_definition_says(small, cases, seed, ties):
    """Two draws after each history, in slots in any order."""
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(len(cases) + 1, generator=generator).tolist()
    running = [case.sequence(small, slot) for case, slot in zip(cases, slots, strict=False)]
    tables = tables_of(small, running, len(slots))
    for _ in range(2):
        logits = 3 * torch.randn(len(running), small.speech_rows, generator=generator)
        logits = logits.round() if ties else logits
        expected = [
            counted_draw(row, sequence.sampler, sequence.blocked)
            for row, sequence in zip(logits, running, strict=True)
        ]
        assert draw_for(tables, running, logits) == expected
        for sequence, id_ in zip(running, expected, strict=True):
            sequence.accept(id_)
        running = [each for each in running if each.finish_reason is None and not each.stalled]
        if not running:
            return


def test_history_is_a_ring(small):
    """The window of the last ids goes round; those before it don't count."""
    options = SamplingOptions(window=2, tau=1.0, seed=4)
    sequence = started(small, options)
    tables = tables_of(small, [sequence], 1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2 * 2 * MAX_LEN + 3):
        logits = torch.randn(1, small.speech_rows, generator=generator)
        logits[:, SPEECH:] = -50
        logits[:, :2] += 5
        expected = counted_draw(logits[0], sequence.sampler)
        assert draw_for(tables, [sequence], logits) == [expected]
        sequence.accept(expected)


def test_a_sequence_draws_the_same_in_any_company(small):
    logits = torch.randn(3, small.speech_rows, generator=torch.Generator().manual_seed(0))
    sequences = [started(small, SamplingOptions(seed=seed), seed, least=5) for seed in range(3)]
    together = draw_for(tables_of(small, sequences, 3), sequences, logits)
    for row, sequence in enumerate(sequences):
        assert draw_for(tables_of(small, [sequence], 3), [sequence], logits[row : row + 1]) == [together[row]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_row_without_a_distribution_is_marked_and_alone(small, bad):
    logits = torch.randn(3, small.speech_rows, generator=torch.Generator().manual_seed(1))
    sequences = [started(small, SamplingOptions(seed=seed), seed) for seed in range(3)]
    expected = draw_for(tables_of(small, sequences, 3), sequences, logits)
    logits[1, 7] = bad
    tables = tables_of(small, sequences, 3)
    assert draw_for(tables, sequences, logits) == [expected[0], NOT_FINITE, expected[2]]
    assert tables.tokens[1] in range(small.speech_rows)  # the next step may still feed it


@pytest.mark.parametrize("end", [SPEECH, SPEECH + 2, None], ids=["stop", "fill", "not finite"])
def test_what_is_drawn_after_the_end_changes_nothing(small, end):
    """A slot that is set again goes on where its sequence was."""
    sequence = started(small, SamplingOptions(seed=3))
    tables = tables_of(small, [sequence], 1)
    logits = torch.full((1, small.speech_rows), torch.nan)
    if end is not None:
        logits = torch.full((1, small.speech_rows), -50.0)
        logits[0, end] = 50
    assert draw_for(tables, [sequence], logits) == [NOT_FINITE if end is None else end]
    before = [table.clone() for table in (tables.counts, tables.history, tables.tokens, tables.seen)]
    draw_for(tables, [sequence], torch.randn(1, small.speech_rows))
    draw_for(tables, [sequence], torch.randn(1, small.speech_rows), SlotWork.FILL)
    for table, old in zip((tables.counts, tables.history, tables.tokens, tables.seen), before, strict=True):
        assert torch.equal(table, old)
    tables.set(torch.tensor([0]), [sequence])
    logits = torch.randn(1, small.speech_rows)
    assert draw_for(tables, [sequence], logits) == [counted_draw(logits[0], sequence.sampler)]


def test_an_idle_slot_stays_as_it_is(small):
    sequences = [started(small, SamplingOptions(seed=seed), seed) for seed in range(2)]
    logits = torch.randn(2, small.speech_rows)
    tables, undisturbed = (tables_of(small, sequences, 2) for _ in range(2))
    work = torch.tensor([SlotWork.IDLE, SlotWork.DRAW])
    draw_plain(torch.full_like(logits, torch.nan), torch.arange(2), work, tables)
    assert draw_for(tables, sequences[:1], logits[:1]) == draw_for(undisturbed, sequences[:1], logits[:1])


def test_a_fill_marker_is_no_draw_and_counts_as_one(small):
    """It comes whatever the logits are, and the draw after it has the next number."""
    stream = TextStream(small)
    sequence = started(small, SamplingOptions(seed=9), stream=stream)
    tables = tables_of(small, [sequence], 1)
    nothing = torch.full((1, small.speech_rows), torch.nan)
    assert draw_for(tables, [sequence], nothing, SlotWork.FILL) == [small.fill_id]
    sequence.accept(small.fill_id)
    stream.push([1] * 5)
    stream.take()
    tables.set(torch.tensor([0]), [sequence])
    logits = torch.randn(1, small.speech_rows)
    assert len(sequence.sampler.history) == 1
    assert draw_for(tables, [sequence], logits) == [
        counted_draw(logits[0], sequence.sampler, sequence.blocked)
    ]


@pytest.mark.parametrize(
    ("early", "least", "allowed"),
    [(False, 1, set()), (True, 1, {1, 2}), (False, 0, {0, 1, 2})],
    ids=["below", "as upstream", "from the minimum on"],
)
def test_control_ids_that_may_be_drawn(small, early, least, allowed):
    options = SamplingOptions(top_k=0, top_p=1.0, upstream_min_length_mask=early)
    logits = torch.zeros(1, small.speech_rows)
    logits[:, -3:] = 3.0
    drawn = set()
    for seed in range(200):
        sequence = started(small, dataclasses.replace(options, seed=seed), least=least)
        drawn |= set(draw_for(tables_of(small, [sequence], 1), [sequence], logits))
    assert {id_ - SPEECH for id_ in drawn if id_ >= SPEECH} == allowed


SEEDS = 30_000
FAR_TAIL = 1e-4
"""Chance of a fixed set of seeds to be further off than this, were the distribution right."""


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(),
        SamplingOptions(tau=0.2),
        SamplingOptions("ras", top_k=4, top_p=0.9, temperature=1.5),
        SamplingOptions("nucleus", top_k=6, top_p=0.7, repetition_penalty=1.4),
        SamplingOptions("nucleus", top_k=0, top_p=1.0, temperature=0.7),
    ],
    ids=["ras", "ras, later", "ras, few", "nucleus", "all"],
)
def test_distribution_is_the_definitions(small, options):
    """Of many seeds; RAS counts repetitions in a history with two ids that are likely."""
    logits = 2 * torch.randn(small.speech_rows, generator=torch.Generator().manual_seed(2))
    likely = logits.argsort(descending=True)[:2].tolist()
    history = [likely[0], 5, likely[1], likely[0], 8]
    expected = probabilities(logits, options, history)
    sequences = []
    for seed in range(SEEDS):
        sequence = started(small, dataclasses.replace(options, seed=seed), seed)
        sequence.sampler.history += history
        sequences.append(sequence)
    drawn = draw_for(tables_of(small, sequences, SEEDS), sequences, logits.expand(SEEDS, -1))
    assert set(drawn) <= {id_ for id_, prob in enumerate(expected) if prob > 0}
    counts = Counter(drawn)
    usual = [id_ for id_, prob in enumerate(expected) if prob * SEEDS >= 5]
    observed = [counts[id_] for id_ in usual]
    wanted = np.array([expected[id_] for id_ in usual])
    rest, rare = SEEDS - sum(observed), 1 - wanted.sum()
    if rare * SEEDS >= 5:
        observed, wanted = [*observed, rest], np.append(wanted, rare)
    wanted *= SEEDS
    assert float(((observed - wanted) ** 2 / wanted).sum()) < chi_square_quantile(len(wanted) - 1)


def chi_square_quantile(freedom: int) -> float:
    """Which the statistic exceeds with chance `FAR_TAIL`, by Wilson and Hilferty's approximation."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + NormalDist().inv_cdf(1 - FAR_TAIL) * spread**0.5) ** 3


def probabilities(logits: Tensor, options: SamplingOptions, history: list[int]) -> list[float]:
    """Of each id to be the next, in real numbers."""
    scores = logits.double() / options.temperature
    for id_ in {1, 2, *history}:
        scores[id_] *= options.repetition_penalty if scores[id_] < 0 else 1 / options.repetition_penalty
    whole = scores.softmax(0)
    order = whole.argsort(descending=True)[: options.top_k or len(whole)].tolist()
    total = 1.0 if options.strategy == "ras" else float(whole[order].sum())
    kept, reached = [], 0.0
    for id_ in order:
        if reached < options.top_p * total:
            kept.append(id_)
        reached += float(whole[id_])
    first = {id_: float(whole[id_] / whole[kept].sum()) for id_ in kept}
    result = [0.0] * len(whole)
    for id_, prob in first.items():
        if options.strategy == "ras" and history.count(id_) >= options.window * options.tau:
            for other in range(len(whole)):
                if other != id_:
                    result[other] += prob * float(whole[other] / (1 - whole[id_]))
        else:
            result[id_] += prob
    return result
