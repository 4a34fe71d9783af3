"""When the speech LM speaks a word, by what its draws depend on.

From a word on, the text is replaced by other text, and the tokens that were spoken are given again. The draws
stay alike until the word is spoken. On the demo voice the first row whose draws differ by more than two nats
lies 13 ms from the true beginning at the median, 41 ms at the 95th percentile and 7 ms too early on average.

B: prompts of equal length, T: speech tokens, N: text tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.lm.prompt import Prompt, PromptSegment, Table
from cosyvoice_runtime.lm.torch.head_scores import HeadScores
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

DIFFERENT = 2.0
"""Mean divergence (Kullback-Leibler, in nats) of draws that a word has changed. Of 0.1, 0.25, 0.5, 1 and 2,
beginnings by this one are nearest to the demo voice's true ones."""
EARLY_ROWS = 0.2
"""By how many rows these beginnings are too early on the demo voice: 7 to 9 ms."""
ALTERNATIVES = 4
"""Other texts for each word, whose divergences are averaged."""
MOST_TOGETHER = 16
"""Prompts in one pass, which bounds its memory."""


@torch.inference_mode()
def draws(lm: SpeechLM, prompts: Sequence[Prompt], tokens: Sequence[int]) -> Tensor:
    """Log-probabilities, float32 ``[B, T, speech rows]``, of each draw if the tokens before it are given."""
    given = PromptSegment(Table.SPEECH, list(tokens[:-1]))
    embeddings = torch.stack(
        [lm.embed([each for each in (*prompt.segments(), given) if len(each.ids)]) for prompt in prompts]
    )
    size, length, _ = embeddings.shape
    positions = torch.arange(length, device=embeddings.device).expand(size, -1)
    cache = KVCache(lm.config, size, length, lm.device, lm.dtype)
    hidden = lm(embeddings, positions, cache.view(0, size), length)
    return lm.logits(hidden[:, -len(tokens) :]).log_softmax(-1)


def attention(
    lm: SpeechLM, prompt: Prompt, tokens: Sequence[int], heads: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """`draws` of one prompt ``[T, speech rows]``, and each head's attention to its text ``[heads, T, N]``."""
    scores = lm.scores = HeadScores(heads, rows=len(tokens))
    try:
        [drawn] = draws(lm, [prompt], tokens)
    finally:
        lm.scores = None
    return drawn, scores.shares(prompt.text_positions)[0]


def onsets(
    lm: SpeechLM,
    prompt: Prompt,
    tokens: Sequence[int],
    drawn: Tensor,
    begins: Sequence[int],
    others: Sequence[int],
    chance: np.random.Generator,
) -> list[int | None]:
    """First rows of some words; None for one that changes no draw.

    Args:
        drawn: `draws` of the prompt, ``[T, speech rows]``.
        begins: first text token of each word, ascending, none of them 0.
        others: ids of other text, of which alternatives are cut out; longer than the prompt's text.
    """
    changed = [
        dataclasses.replace(
            prompt, text=[*prompt.text[:begin], *_cut(others, len(prompt.text) - begin, chance)]
        )
        for begin in begins
        for _ in range(ALTERNATIVES)
    ]
    found = [
        _divergence(drawn, draws(lm, changed[first : first + MOST_TOGETHER], tokens))
        for first in range(0, len(changed), MOST_TOGETHER)
    ]
    by_word = torch.cat(found).unflatten(0, (-1, ALTERNATIVES)).mean(1).cpu().numpy()
    rows: list[int | None] = []
    earliest = 0
    for divergence in by_word:
        different = np.flatnonzero(divergence[earliest:] > DIFFERENT)
        rows.append(earliest + int(different[0]) if len(different) else None)
        earliest = earliest if rows[-1] is None else rows[-1]
    return rows


def _divergence(drawn: Tensor, others: Tensor) -> Tensor:
    """``[B, T]``."""
    return (drawn.exp() * (drawn - others)).sum(-1)


def _cut(ids: Sequence[int], count: int, chance: np.random.Generator) -> Sequence[int]:
    first = int(chance.integers(len(ids) - count + 1))
    return ids[first : first + count]
