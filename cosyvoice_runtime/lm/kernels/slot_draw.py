"""The draw of one id for each slot of a step, one program a slot.

Its plain twin is :func:`cosyvoice_runtime.lm.torch.slot_draws.draw_plain`. Nothing is sorted: the winner of
the race among all ids is drawn if it is a candidate; else the race is held again among the more probable ids,
with the same times. So the last winner is that of a race among the candidates alone.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import LATE, NOT_CHAINED, wait_for_previous
from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.rows import row_on
from cosyvoice_runtime.lm.sampling import NOT_FINITE, Barred
from cosyvoice_runtime.lm.torch.slot_draws import WHOLE_MASS, Count, DrawSlots, Factor, SlotTables, SlotWork

WARPS = 16
COLUMNS, FACTORS = tl.constexpr(len(Count)), tl.constexpr(len(Factor))
(SEED, DRAWS, SPOKEN, LEAST, EARLY, LATER, CANDIDATES, OF_CANDIDATES, WINDOW, REPEATS, LIVE) = (
    tl.constexpr(int(column)) for column in Count
)
TOP_P, TEMPERATURE, PENALTY = (tl.constexpr(int(column)) for column in Factor)
DRAW = tl.constexpr(int(SlotWork.DRAW))
IDLE = tl.constexpr(int(SlotWork.IDLE))
FIRST_STOP, ALL_STOPS = tl.constexpr(int(Barred.FIRST)), tl.constexpr(int(Barred.ALL))
ALL_BUT_FILL = tl.constexpr(int(Barred.ALL_BUT_FILL))
BROKEN = tl.constexpr(NOT_FINITE)
MASS = tl.constexpr(WHOLE_MASS)
ABOVE_ONE = tl.constexpr(0x3F800001)
"""Bits of the float after 1."""
BITS_OF_PROBABILITY = tl.constexpr(30)
LOOK_BACK = tl.constexpr(128)


@triton.jit
def _log_clocks(seed, draws, attempt, BLOCK: tl.constexpr):
    """float32 ``[BLOCK]`` of logarithms of exponential noise, ``slot_draws.exponential_noise``."""
    group = tl.arange(0, BLOCK // 4).to(tl.uint32)
    zero = group * 0
    w0, w1, w2, w3 = tl.philox(seed, group, zero + draws.to(tl.uint32), zero + attempt, zero)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), [BLOCK])
    return tl.log(-tl.log(((words >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07))


@triton.jit
def _scored(
    logits, marks, factors, counts, ids, ROWS: tl.constexpr, SPEECH: tl.constexpr, FILL: tl.constexpr
):
    """Logits after temperature and penalty; -inf for barred ids and beyond the last."""
    known = ids < ROWS
    x = tl.load(logits + ids, mask=known, other=-float("inf"))
    x = tl.div_rn(x, tl.load(factors + TEMPERATURE))
    penalty = tl.load(factors + PENALTY)
    penalised = tl.where(x < 0, x * penalty, tl.div_rn(x, penalty))
    x = tl.where(tl.load(marks + ids, mask=known, other=0) != 0, penalised, x)
    early = tl.load(counts + SPOKEN) < tl.load(counts + LEAST)
    which = tl.where(early, tl.load(counts + EARLY), tl.load(counts + LATER))
    barred = ((which == ALL_STOPS) & (ids >= SPEECH)) | ((which == FIRST_STOP) & (ids == SPEECH))
    barred = barred | ((which == ALL_BUT_FILL) & (ids >= SPEECH) & (ids != FILL))
    return tl.where(barred, -float("inf"), x)


@triton.jit
def _mass_of_most(bits, mass, most):
    """The probability of the ``most`` most probable ids together."""
    low = tl.full([], 0, tl.int32)  # At least so many ids have these bits or more.
    high = tl.full([], ABOVE_ONE, tl.int32)
    for _ in range(BITS_OF_PROBABILITY):
        middle = (low + high) // 2
        enough = tl.sum((bits >= middle).to(tl.int32), axis=0) >= most
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    above = bits > low
    missing = most - tl.sum(above.to(tl.int32), axis=0)
    last = (low.to(tl.float32, bitcast=True) * MASS + 0.5).to(tl.int32)
    return tl.sum(tl.where(above, mass, 0), axis=0) + missing * last


@triton.jit
def _above(winner, bits, ids):
    """Ids that are more probable than one of them, or as probable and lower."""
    its = tl.sum(tl.where(ids == winner, bits, 0), axis=0)
    return (bits > its) | ((bits == its) & (ids < winner))


@triton.jit
def _winner(x, total, log_clocks, counts, factors, ids, ROWS: tl.constexpr):
    """The winner of a race among the candidates."""
    peak = tl.max(x, axis=0)
    p = tl.exp(x - peak) / total
    bits = p.to(tl.int32, bitcast=True)
    mass = (p * MASS + 0.5).to(tl.int32)
    most = tl.load(counts + CANDIDATES).to(tl.int32)
    whole = tl.full([], MASS, tl.int32)
    if tl.load(counts + OF_CANDIDATES) != 0:
        whole = tl.sum(mass, axis=0)
        if most < ROWS:
            whole = _mass_of_most(bits, mass, most)
    share = tl.load(factors + TOP_P).to(tl.float64) * whole.to(tl.float64)
    score = tl.where(most == 1, x, x - log_clocks)
    winner = tl.argmax(score, axis=0)
    above = _above(winner, bits, ids)
    number = tl.sum(above.to(tl.int32), axis=0)
    before = tl.sum(tl.where(above, mass, 0), axis=0)
    while (number >= most) | (before.to(tl.float64) >= share):
        score = tl.where(above, score, -float("inf"))
        winner = tl.argmax(score, axis=0)
        above = _above(winner, bits, ids)
        number = tl.sum(above.to(tl.int32), axis=0)
        before = tl.sum(tl.where(above, mass, 0), axis=0)
    return winner


@triton.jit
def _occurrences(winner, history, counts, draws, remembered):
    """Number of times that the winner is among the last ids."""
    recent = tl.minimum(draws, tl.load(counts + WINDOW))
    found = tl.full([], 0, tl.int32)
    for start in range(0, recent, LOOK_BACK):
        age = start + tl.arange(0, LOOK_BACK)
        place = (draws - 1 - age) % remembered
        past = tl.load(history + place, mask=age < recent, other=-1)
        found += tl.sum((past == winner).to(tl.int32), axis=0)
    return found


@triton.jit
def _drawn_id(
    logits, log_clocks, marks, factors, counts, history, draws, remembered,
    ROWS: tl.constexpr, SPEECH: tl.constexpr, FILL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ids = tl.arange(0, BLOCK)
    x = _scored(logits, marks, factors, counts, ids, ROWS, SPEECH, FILL)
    total = tl.sum(tl.exp(x - tl.max(x, axis=0)), axis=0)
    id_ = tl.full([], BROKEN, tl.int32)
    if total == total:
        id_ = _winner(x, total, log_clocks, counts, factors, ids, ROWS)
        if _occurrences(id_, history, counts, draws, remembered) >= tl.load(counts + REPEATS):
            score = x - _log_clocks(tl.load(counts + SEED), draws, 1, BLOCK)
            id_ = tl.argmax(tl.where(ids == id_, -float("inf"), score), axis=0)
    return id_


@launched
@triton.jit(do_not_specialize=["remembered"], do_not_specialize_on_alignment=["work"])
def _slot_draw(
    logits, slots, work, counts, factors, tokens, history, seen, drawn, remembered,
    ROWS: tl.constexpr, SPEECH: tl.constexpr, FILL: tl.constexpr, BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    task = tl.load(work + row)
    counts += slot * COLUMNS
    if (task == IDLE) | (tl.load(counts + LIVE) == 0):
        wait_for_previous(CHAINED)
        return
    history += slot * remembered
    seen += slot * ROWS
    draws = tl.load(counts + DRAWS)
    id_ = tl.full([], FILL, tl.int32)
    log_clocks = _log_clocks(tl.load(counts + SEED), draws, 0, BLOCK)
    wait_for_previous(CHAINED)
    if task == DRAW:
        id_ = _drawn_id(
            logits + row * ROWS, log_clocks, seen, factors + slot * FACTORS, counts, history,
            draws, remembered, ROWS, SPEECH, FILL, BLOCK,
        )  # fmt: skip
    tl.store(drawn + row, id_.to(tl.int64))
    if id_ >= 0:
        tl.store(history + draws % remembered, id_)
        tl.store(tokens + slot, id_.to(tl.int64))
        tl.store(seen + id_, 1)
        tl.store(counts + DRAWS, draws + 1)
    if (id_ >= 0) & (id_ < SPEECH):
        tl.store(counts + SPOKEN, tl.load(counts + SPOKEN) + 1)
    else:
        tl.store(counts + LIVE, 0)


def slot_draw(
    logits: Tensor, slots: Tensor, work: Tensor, tables: SlotTables, chained: int = NOT_CHAINED
) -> Tensor:
    """Draw as `slot_draws.DrawSlots` says, from contiguous rows of logits.

    Args:
        chained: whether the draw starts while the kernel that makes the logits ends; that one must not touch
            the tables.
    """
    rows = logits.shape[1]
    drawn = torch.empty_like(slots)
    with torch.cuda.device_of(logits):
        _slot_draw[(len(slots),)](
            logits.contiguous(), slots, work, tables.counts, tables.factors, tables.tokens, tables.history,
            tables.seen, drawn, tables.history.shape[1],
            rows, tables.speech_tokens, tables.fill_id, next_power_of_2(rows), chained,
            num_warps=WARPS, launch_pdl=chained > 0,
        )  # fmt: skip
    return drawn


chained_slot_draw = partial(slot_draw, chained=LATE)


def draw_after_step(device: torch.device) -> DrawSlots:
    """The draw after `fused_step.FusedStep`, whose last kernel is chained where the GPU can do that."""
    return chained_slot_draw if row_on(device).chained else slot_draw
