"""How a batch is brought forward by one token."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.lm.cache import KVCache
from cosyvoice_runtime.lm.network import SpeechLM

SPAN_STEP = 64
"""Steps attend to a multiple of this many cache positions: few distinct shapes, little excess."""


class DecodeSteps(Protocol):
    """Steps over the first slots of a cache."""

    def size(self, needed: int) -> int:
        """Slots that a step takes when it needs at least ``needed`` of them."""

    def span(self, needed: int) -> int:
        """Positions that a step attends to when it needs at least ``needed`` of them."""

    def run(self, tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], span: int) -> Tensor:
        """Feed one token to each slot; see :meth:`SpeechLM.decode_step`.

        Args:
            tokens, positions: [S], S from :meth:`size`.
            span: from :meth:`span`.

        Returns:
            float32 logits [S, speech_rows].
        """


class EagerSteps:
    """Steps as large as needed."""

    def __init__(self, lm: SpeechLM, cache: KVCache) -> None:
        self._lm = lm
        self._cache = cache

    def size(self, needed: int) -> int:
        return needed

    def span(self, needed: int) -> int:
        return min(-(-needed // SPAN_STEP) * SPAN_STEP, self._cache.max_len)

    def run(self, tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], span: int) -> Tensor:
        fed = torch.from_numpy(np.stack([tokens, positions])).to(self._lm.device)
        return self._lm.decode_step(fed[0], fed[1], self._cache.view(0, len(tokens)), span)
