"""Draws for every slot on the device, with random numbers that are counted and not kept.

The state of the draws stays in tables on the device, so that the next step can be launched before the host
has read the ids of this one. For the same logits a sequence draws the same ids whatever else is in the batch;
they differ from the ids of `sampling`, which draws on the host, and have the same distribution.

Random numbers come from Philox4x32-10 (Salmon et al., "Parallel random numbers", 2011): four words follow
from a key and a counter alone. So one kernel draws for all sequences, and what one of them draws depends on
its own seed and on its number of draws.

B: rows drawn for, S: slots, V: speech rows of the head, H: ids remembered of each slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.gpu.transfer import integers, moved
from cosyvoice_runtime.lm.generation import Generation
from cosyvoice_runtime.lm.sampling import NOT_FINITE, Barred

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
WORD = 0xFFFFFFFF
WORDS = 4
"""Words that follow from one counter."""

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(seed: Tensor, counter: Words) -> Words:
    """Four words below 2**32, int64, of each counter.

    Args:
        seed: int64; the key is its lower and its upper half.
        counter: int64 tensors with values below 2**32, all of one shape with the seed by broadcasting.
    """
    first, second = seed & WORD, (seed >> 32) & WORD
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        # A product beyond 2**63 wraps, which changes none of its 64 bits.
        one, two = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c2 = ((two >> 32) & WORD) ^ c1 ^ first, ((one >> 32) & WORD) ^ c3 ^ second
        c1, c3 = two & WORD, one & WORD
        first, second = (first + KEY_STEPS[0]) & WORD, (second + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def exponential_noise(seeds: Tensor, draws: Tensor, attempt: int, size: int) -> Tensor:
    """float32 [B, size] of exponential distribution, one for each id, never 0.

    Args:
        seeds: [B] int64.
        draws: [B] int64, number of the draw within its sequence.
        attempt: 0, or 1 for a draw that replaces a rejected one.
    """
    groups = torch.arange(-(-size // WORDS), device=seeds.device)
    zero = torch.zeros_like(groups)
    words = philox(seeds[:, None], (groups, draws[:, None] + zero, zero + attempt, zero))
    bits = torch.stack(words, dim=2).flatten(1)[:, :size]
    # 23 bits and a half: every value is exact in float32, and neither 0 nor 1.
    return -(((bits >> 9).float() + 0.5) * 2.0**-23).log()


WHOLE_MASS = 2**30
"""Probabilities are added as whole numbers of this fraction, so that their sum does not depend on the
order."""


TableRow = npt.NDArray[np.generic]
RowOf = Callable[[Generation, int], TableRow]
"""A function that makes a sequence's row of a table with so many columns."""


class SlotWork(IntEnum):
    """A slot's work in a step."""

    IDLE = 0
    """No work: the slot has no sequence, or its sequence nothing to feed."""
    DRAW = 1
    FILL = 2
    """The next id is the fill marker, whatever the logits say."""


def work_after_feed(sequence: Generation) -> SlotWork:
    """Work after a prompt, a text, or a repeated feed, whose block may be complete."""
    return SlotWork.FILL if sequence.must_fill else SlotWork.DRAW


class Count(IntEnum):
    """Columns of `SlotTables.counts`."""

    SEED = 0
    DRAWS = 1
    """Ids drawn so far, fill markers included: the number of the next draw."""
    SPOKEN = 2
    """Speech tokens so far."""
    LEAST = 3
    """Speech tokens from which on `LATER` and not `EARLY` says which stop ids are barred."""
    EARLY = 4
    LATER = 5
    CANDIDATES = 6
    """Most candidates."""
    OF_CANDIDATES = 7
    """1: top_p is a share of what the candidates have together; 0: of everything."""
    WINDOW = 8
    REPEATS = 9
    """A draw that occurs so often among the last `WINDOW` ids is replaced."""
    LIVE = 10
    """0 after the sequence has drawn a control id; what is computed for it then changes nothing."""


class Factor(IntEnum):
    """Columns of `SlotTables.factors`."""

    TOP_P = 0
    TEMPERATURE = 1
    PENALTY = 2


class SlotTables:
    """State of each slot's draws; a draw brings it forward.

    Attributes:
        counts: [S, columns of `Count`] int64.
        factors: [S, columns of `Factor`] float32.
        tokens: [S] int64, the id drawn last, which the next step feeds.
        history: [S, H] int32, a ring of the ids drawn.
        seen: [S, V] uint8, ids that the repetition penalty counts; kept for sequences with a penalty.
    """

    def __init__(self, config: SpeechLMConfig, slots: int, max_len: int, device: torch.device) -> None:
        self.speech_tokens, self.fill_id = config.speech_tokens, config.fill_id
        self.counts = torch.zeros(slots, len(Count), dtype=torch.int64, device=device)
        self.factors = torch.ones(slots, len(Factor), device=device)
        self.tokens = torch.zeros(slots, dtype=torch.int64, device=device)
        # A sequence has fewer speech tokens than positions, and fewer fill markers than text tokens.
        self.history = torch.zeros(slots, 2 * max_len, dtype=torch.int32, device=device)
        self.seen = torch.zeros(slots, config.speech_rows, dtype=torch.uint8, device=device)

    def set(self, slots: Tensor, sequences: Sequence[Generation]) -> None:
        """Set the rows of slots [B] by these sequences, none of which may have a draw under way."""
        values = [slot_values(sequence, self.seen.shape[1]) for sequence in sequences]
        counts = torch.from_numpy(np.stack([counts for counts, _ in values]))
        factors = torch.from_numpy(np.stack([factors for _, factors in values]))
        begins = torch.ones_like(slots, dtype=torch.bool)
        self.begin(slots, moved(counts, slots.device), moved(factors, slots.device), begins)
        self.set_history(sequences)

    def set_history(self, sequences: Sequence[Generation]) -> None:
        """Set ids drawn before, and ids that a penalty counts, for the few sequences that have any."""
        self._set_rows(self.history, [sequence for sequence in sequences if sequence.sampler.history], _ring)
        penalised = [sequence for sequence in sequences if sequence.sampler.options.repetition_penalty != 1]
        self._set_rows(self.seen, penalised, _marks)

    def begin(self, slots: Tensor, counts: Tensor, factors: Tensor, begins: Tensor) -> None:
        """Set rows of slots [B], each once, where ``begins`` [B] is true; can be captured.

        Args:
            counts: [B, columns of `Count`] int64.
            factors: [B, columns of `Factor`] float32.
        """
        self.counts[slots] = torch.where(begins[:, None], counts, self.counts[slots])
        self.factors[slots] = torch.where(begins[:, None], factors, self.factors[slots])

    def _set_rows(self, table: Tensor, sequences: Sequence[Generation], row: RowOf) -> None:
        if not sequences:
            return
        rows = torch.from_numpy(np.stack([row(sequence, table.shape[1]) for sequence in sequences]))
        table[integers([sequence.slot for sequence in sequences], table.device)] = moved(rows, table.device)

    def record(self, slots: Tensor, ids: Tensor, acts: Tensor) -> None:
        """Add ids [B] to the histories of slots [B], where ``acts`` [B] is true."""
        counts = self.counts[slots]
        speaks = ids < self.speech_tokens
        drawn = acts & (ids != NOT_FINITE)
        column = counts[:, Count.DRAWS] % self.history.shape[1]
        self.history[slots, column] = torch.where(drawn, ids.int(), self.history[slots, column])
        self.tokens[slots] = torch.where(drawn, ids, self.tokens[slots])
        self.seen[slots, ids.clamp(min=0)] |= drawn
        counts[:, Count.DRAWS] += drawn
        counts[:, Count.SPOKEN] += drawn & speaks
        counts[:, Count.LIVE] *= ~acts | (drawn & speaks)
        self.counts[slots] = counts


class DrawSlots(Protocol):
    """Draws for slots and brings their tables forward; reads nothing back to the host."""

    def __call__(self, logits: Tensor, slots: Tensor, work: Tensor, tables: SlotTables) -> Tensor:
        """Draw.

        Args:
            logits: [B, V] float32.
            slots: [B] int64, each once.
            work: [B] int64, values of `SlotWork`.

        Returns:
            ids [B] int64, `NOT_FINITE` for logits that hold nan or +inf; without meaning where the work is
            idle or the slot no longer live.
        """


def draw_plain(logits: Tensor, slots: Tensor, work: Tensor, tables: SlotTables) -> Tensor:
    """`DrawSlots` in plain PyTorch."""
    scores = _scores(logits, slots, tables)
    counts = tables.counts[slots]
    seeds, draws = counts[:, Count.SEED], counts[:, Count.DRAWS]
    probs = scores.softmax(dim=1)
    candidates = _candidates(probs, counts, tables.factors[slots, Factor.TOP_P])
    noise = exponential_noise(seeds, draws, 0, scores.shape[1])
    ids = _raced(scores.masked_fill(~candidates, -torch.inf), noise)
    noise = exponential_noise(seeds, draws, 1, scores.shape[1])
    others = _raced(scores.scatter(1, ids[:, None], -torch.inf), noise)
    rejected = _occurrences(ids, tables.history[slots], counts) >= counts[:, Count.REPEATS]
    ids = torch.where(rejected, others, ids).masked_fill(probs[:, 0].isnan(), NOT_FINITE)
    ids = ids.masked_fill(work == SlotWork.FILL, tables.fill_id)
    tables.record(slots, ids, (work != SlotWork.IDLE) & (counts[:, Count.LIVE] != 0))
    return ids


def _scores(logits: Tensor, slots: Tensor, tables: SlotTables) -> Tensor:
    """Logits after temperature and repetition penalty, -inf for barred ids."""
    factors = tables.factors[slots]
    scores = logits / factors[:, Factor.TEMPERATURE, None]
    penalty = factors[:, Factor.PENALTY, None]
    penalised = torch.where(scores < 0, scores * penalty, scores / penalty)
    scores = torch.where(tables.seen[slots] != 0, penalised, scores)
    return scores.masked_fill(_barred(tables.counts[slots], scores.shape[1], tables), -torch.inf)


def _barred(counts: Tensor, rows: int, tables: SlotTables) -> Tensor:
    early = counts[:, Count.SPOKEN] < counts[:, Count.LEAST]
    which = torch.where(early, counts[:, Count.EARLY], counts[:, Count.LATER])[:, None]
    ids = torch.arange(rows, device=counts.device)
    stops = ids >= tables.speech_tokens
    barred = stops & (which == Barred.ALL)
    barred |= (ids == tables.speech_tokens) & (which == Barred.FIRST)
    return barred | (stops & (ids != tables.fill_id) & (which == Barred.ALL_BUT_FILL))


def _candidates(probs: Tensor, counts: Tensor, top_p: Tensor) -> Tensor:
    """Mask [B, V] of ids a draw chooses from: the most probable ones, of equal ones the lower ids."""
    size = probs.shape[1]
    ids = torch.arange(size, device=probs.device)
    # Floats of one sign order like their bits; with the id below them, no two keys are equal.
    keys = (probs.view(torch.int32).long() << 32) | (size - 1 - ids)
    order = size - 1 - (keys.sort(dim=1, descending=True).values & 0xFFFFFFFF)
    mass = (probs * WHOLE_MASS + 0.5).long().gather(1, order)
    within = ids < counts[:, Count.CANDIDATES, None]
    before = mass.cumsum(1) - mass
    of_candidates = counts[:, Count.OF_CANDIDATES, None] != 0
    total = torch.where(of_candidates, (mass * within).sum(1, keepdim=True), WHOLE_MASS)
    chosen = within & (before < top_p.double()[:, None] * total)
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def _raced(scores: Tensor, noise: Tensor) -> Tensor:
    """Ids [B] that win a race of exponential clocks, each with its score's share of probability."""
    return (scores - noise.log()).argmax(dim=1)


def _occurrences(ids: Tensor, history: Tensor, counts: Tensor) -> Tensor:
    """Number of times [B] that each id is among the last of its slot's history [B, H]."""
    columns = torch.arange(history.shape[1], device=ids.device)
    draws = counts[:, Count.DRAWS, None]
    age = (draws - 1 - columns) % history.shape[1]
    recent = age < torch.minimum(draws, counts[:, Count.WINDOW, None])
    return ((history == ids[:, None]) & recent).sum(1)


def _ring(sequence: Generation, size: int) -> TableRow:
    history = sequence.sampler.history
    first = max(0, len(history) - size)
    ring = np.zeros(size, dtype=np.int32)
    ring[np.arange(first, len(history)) % size] = history[first:]
    return ring


def _marks(sequence: Generation, size: int) -> TableRow:
    marks = np.zeros(size, dtype=np.uint8)
    marks[[*sequence.sampler.prompt, *sequence.sampler.history]] = 1
    return marks


def slot_values(sequence: Generation, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """A sequence's row of `SlotTables.counts` and of `SlotTables.factors`; ``rows`` is the head's number."""
    return (
        np.array(_counts(sequence, rows), dtype=np.int64),
        np.array(_factors(sequence), dtype=np.float32),
    )


def _counts(sequence: Generation, rows: int) -> list[int]:
    sampler, options = sequence.sampler, sequence.sampler.options
    early, later = sequence.barred
    ras = options.strategy == "ras"
    values = {
        Count.SEED: sampler.seed,
        Count.DRAWS: len(sampler.history),
        Count.SPOKEN: len(sequence.tokens),
        Count.LEAST: sequence.limits.min_tokens,
        Count.EARLY: early,
        Count.LATER: later,
        Count.CANDIDATES: min(options.candidates, rows),
        Count.OF_CANDIDATES: not ras,
        Count.WINDOW: options.window,
        Count.REPEATS: options.most_repeats if ras else options.window + 1,
        Count.LIVE: True,
    }
    return [int(values[column]) for column in Count]


def _factors(sequence: Generation) -> list[float]:
    options = sequence.sampler.options
    values = {
        Factor.TOP_P: options.top_p,
        Factor.TEMPERATURE: options.temperature,
        Factor.PENALTY: options.repetition_penalty,
    }
    return [values[column] for column in Factor]
