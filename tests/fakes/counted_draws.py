"""What `slot_draws` says, read plainly: one sequence after the other, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.lm.sampling import NOT_FINITE, Blocked, SamplerState

WORD = 2**32
Whole = Any
"""A number, or a numpy array of uint64."""


def philox_words(seed: int, counter: Sequence[Whole]) -> list[Whole]:
    """Philox4x32-10 of one counter, or of many."""
    key = [seed % WORD, seed // WORD]
    words = list(counter)
    for _ in range(10):
        low, high = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            high // WORD ^ words[1] ^ key[0],
            high % WORD,
            low // WORD ^ words[3] ^ key[1],
            low % WORD,
        ]
        key = [(key[0] + 0x9E3779B9) % WORD, (key[1] + 0xBB67AE85) % WORD]
    return words


def noise(seed: int, draw: int, attempt: int, size: int) -> npt.NDArray[np.float32]:
    groups = np.arange(-(-size // 4), dtype=np.uint64)
    zero = np.zeros_like(groups)
    words = np.stack(philox_words(seed, (groups, zero + draw, zero + attempt, zero)), axis=1).ravel()[:size]
    return -np.log((((words // 2**9) + 0.5) / 2**23).astype(np.float32))


def counted_draw(logits: Tensor, state: SamplerState, blocked: Sequence[bool] = ()) -> int:
    """The next id after ``state.history`` from logits [V]; ``blocked`` are the last ids, as many as given."""
    options = state.options
    scores = logits.clone() / options.temperature
    if options.repetition_penalty != 1:
        for id_ in {*state.prompt, *state.history}:
            scores[id_] *= options.repetition_penalty if scores[id_] < 0 else 1 / options.repetition_penalty
    for id_, barred in enumerate(blocked, len(scores) - len(blocked)):
        if barred:
            scores[id_] = -torch.inf
    probs = scores.softmax(0).numpy()
    if np.isnan(probs).any():
        return NOT_FINITE
    token = race(scores, candidates(probs, state), state, 0)
    count = state.history[-options.window :].count(token)
    if options.strategy == "ras" and count >= options.window * options.tau:
        token = race(scores, [id_ for id_ in range(len(scores)) if id_ != token], state, 1)
    return token


def candidates(probs: npt.NDArray[np.float32], state: SamplerState) -> list[int]:
    options = state.options
    order = np.lexsort((np.arange(len(probs)), -probs))[: int(min(options.candidates, len(probs)))].tolist()
    mass = [int(probs[id_] * np.float32(2**30) + np.float32(0.5)) for id_ in order]
    total = 2**30 if options.strategy == "ras" else sum(mass)
    share = float(np.float32(options.top_p)) * total
    before = accumulate(mass, initial=0)
    return [id_ for id_, above in zip(order, before, strict=False) if above < share]


def race(scores: Tensor, ids: list[int], state: SamplerState, attempt: int) -> int:
    times = noise(state.seed, len(state.history), attempt, len(scores))
    places = sorted(ids)
    return places[int((scores.numpy() - np.log(times))[places].argmax())]


def counted_sample_batch(
    logits: Tensor, states: Sequence[SamplerState], blocked: Blocked | None = None
) -> list[int]:
    """In place of `speech_decoder.sample_batch`."""
    barred = [[]] * len(states) if blocked is None else blocked.tolist()
    rows = zip(logits.cpu(), states, barred, strict=True)
    return [counted_draw(row, state, marks) for row, state, marks in rows]
