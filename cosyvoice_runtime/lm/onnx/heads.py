"""The attention heads that follow the text, from the queries that the graph gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm.onnx.rotary import rotary
from cosyvoice_runtime.lm.sampling import IntArray

Queries = Mapping[tuple[int, int], Floats]
"""Float32 ``[B, head_dim]`` of each layer and head, before they are turned."""


class KeyMemory(Protocol):
    """A cache of turned keys: ``data`` is float32 ``[layers, 2, slots, kv_heads, positions, head_dim]``."""

    data: Floats
    lengths: IntArray


class LastQueries(Protocol):
    """A network that keeps the queries of the last positions of its latest pass."""

    queries: Queries


class OnnxHeads:
    """`text_rows.FollowedHeads` of a network over a cache of ``max_len`` positions."""

    def __init__(self, config: SpeechLMConfig, cache: KeyMemory, network: LastQueries, max_len: int) -> None:
        self._cache, self._network = cache, network
        self._queries_of_a_key = config.num_heads // config.num_kv_heads
        cosines, sines = rotary(config, np.arange(max_len))
        scale = np.float32(1 / math.sqrt(config.head_dim))
        self._cosines = scale * np.concatenate([cosines, cosines], axis=1)
        self._sines = scale * np.concatenate([-sines, sines], axis=1)

    def watched(self) -> AbstractContextManager[None]:
        """Nothing: passes always keep these few numbers."""
        return nullcontext()

    def row(self, place: int, slot: int, text: slice) -> Floats:
        last = int(self._cache.lengths[slot]) - 1
        shares: Floats | None = None
        for (layer, head), queries in self._network.queries.items():
            query = queries[place]
            half = len(query) // 2
            turned = query * self._cosines[last]
            turned[:half] += query[half:] * self._sines[last, :half]
            turned[half:] += query[:half] * self._sines[last, half:]
            keys = self._cache.data[layer, 0, slot, head // self._queries_of_a_key, text]
            of_head = _softmax(keys @ turned)
            shares = of_head if shares is None else shares + of_head
        assert shares is not None
        return shares / np.float32(len(self._network.queries))


def _softmax(scores: Floats) -> Floats:
    exps: Floats = np.exp(scores - scores.max())
    exps /= exps.sum()
    return exps
