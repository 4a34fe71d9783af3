"""Random numbers by counting: Philox4x32-10 (Salmon et al., "Parallel random numbers", 2011).

Four words follow from a key and a counter and from nothing that was drawn before. So one kernel draws for all
sequences, and what one of them draws depends on its own seed and on how many draws it has had.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
WORD = 0xFFFFFFFF
WORDS = 4
"""Of one counter."""

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(seed: Tensor, counter: Words) -> Words:
    """Four words of each counter.

    Args:
        seed: int64; the key is its lower and its upper half.
        counter: int64 tensors with values below 2**32, all of one shape with the seed by broadcasting.

    Returns:
        int64 tensors with values below 2**32.
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
