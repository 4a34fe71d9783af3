"""Scores of chosen attention heads, which tell what of the text each speech token looks at.

B: sequences of a pass, D: head_dim, span: cache positions that are attended to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class HeadScores:
    """Keeps the scores of some heads' last queries in the latest pass.

    Args:
        heads: layer and head of each.
        rows: last positions of a pass whose queries count.
    """

    def __init__(self, heads: Sequence[tuple[int, int]], rows: int = 1) -> None:
        self._heads = list(heads)
        self._rows = rows
        self._scores: dict[int, Tensor] = {}

    def take(self, layer: int, queries: Tensor, keys: Tensor) -> None:
        """Score the layer's queries ``[B, T, heads, D]`` against the keys ``[B, kv_heads, span, D]``."""
        chosen = [head for of, head in self._heads if of == layer]
        if not chosen:
            return
        shared = queries.shape[2] // keys.shape[1]
        of_heads = keys[:, [head // shared for head in chosen]]
        last = queries[:, -self._rows :, chosen].transpose(1, 2)
        self._scores[layer] = last.float() @ of_heads.float().mT / math.sqrt(queries.shape[-1])

    def shares(self, text: slice, sequences: slice = slice(None)) -> Tensor:
        """The heads' attention among some positions alone, float32 ``[B, heads, rows, positions]``.

        Args:
            sequences: of the pass, B in all.
        """
        layers: dict[int, int] = {}
        found = []
        for layer, _ in self._heads:
            place = layers[layer] = layers.get(layer, -1) + 1
            found.append(self._scores[layer][sequences, place, :, text])
        return torch.stack(found, dim=1).softmax(dim=-1)
