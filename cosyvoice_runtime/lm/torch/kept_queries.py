"""Queries of chosen attention heads that passes keep, so that rows of attention can follow behind them.

B: sequences of a pass, T: positions fed to each, H: heads, D: head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig

LOG2_E = math.log2(math.e)


class KeptQueries:
    """Queries of the sequences' last positions in the latest pass, of the layers of chosen heads.

    Args:
        heads: layer and head of each; the mean of their shares is a row.
        sequences: most of a pass.

    Attributes:
        data: ``[layers, sequences, H * D]`` in the cache's type, scaled for a softmax in powers of two.
        placed: place of the layer in ``data``, layer, and head of each.
        heads: int32 ``[heads, 3]``, the same.
    """

    def __init__(
        self,
        config: SpeechLMConfig,
        heads: Sequence[tuple[int, int]],
        sequences: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        layers = sorted({layer for layer, _ in heads})
        self._places = {layer: place for place, layer in enumerate(layers)}
        width = config.num_heads * config.head_dim
        self.data = torch.zeros(len(layers), sequences, width, device=device, dtype=dtype)
        self.placed = [(self._places[layer], layer, head) for layer, head in heads]
        self.heads = torch.tensor(self.placed, device=device, dtype=torch.int32)

    def of(self, layer: int, batch: int) -> Tensor | None:
        """Memory ``[B, H * D]`` of a layer's scaled queries; None if none of its heads is chosen."""
        place = self._places.get(layer)
        return None if place is None else self.data[place, :batch]

    def take(self, layer: int, queries: Tensor, last: Tensor | None = None) -> None:
        """Keep a layer's queries ``[B, T, H, D]``, not scaled yet.

        Args:
            last: ``[B]`` int64, the position of each sequence that counts; None: the last one of all.
        """
        kept = self.of(layer, len(queries))
        if kept is None:
            return
        if last is None:
            found = queries[:, -1]
        else:
            found = queries[torch.arange(len(queries), device=queries.device), last]
        torch.mul(found.flatten(1), queries.shape[3] ** -0.5 * LOG2_E, out=kept)
