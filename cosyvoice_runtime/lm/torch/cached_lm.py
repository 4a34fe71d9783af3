"""PyTorch's network over its cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import integers
from cosyvoice_runtime.lm.host_steps import fed_slots
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.sampling import Blocked, SamplerState
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder
from cosyvoice_runtime.lm.torch.tensor_sampling import sample_batch

SPAN_STEP = 64
"""Steps attend to a multiple of this many cache positions: few distinct shapes, little excess."""


class CachedLM:
    """`host_steps.CachedNetwork` with logits as tensors."""

    def __init__(self, lm: SpeechDecoder, cache: KVCache) -> None:
        self._lm = lm
        self._cache = cache

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> Tensor:
        fed, positions = fed_slots(self._cache, slots, tokens)
        span = min(-(-(int(positions.max()) + 1) // SPAN_STEP) * SPAN_STEP, self._cache.max_len)
        self._cache.prepare()
        given = torch.from_numpy(np.stack([fed, positions])).to(self._lm.device)
        logits = self._lm.decode_step(given[0], given[1], self._cache.view(0, len(fed)), span)
        return logits if len(slots) == len(fed) else logits[integers(slots, logits.device)]

    def prefill(self, group: Sequence[Prefill]) -> Tensor:
        embeddings = [self._lm.embed(prefill.parts) for prefill in group]
        slots = [prefill.sequence.slot for prefill in group]
        starts = [prefill.start for prefill in group]
        self._cache.lengths[slots] = [prefill.end for prefill in group]
        self._cache.prepare()
        if len(group) == 1:
            view = self._cache.view(slots[0], slots[0] + 1)
            return self._lm.prefill(embeddings[0], starts[0], view)[None]
        return self._lm.prefill_batch(
            embeddings, starts, self._cache.gathered(integers(slots, self._lm.device))
        )

    def sample(self, logits: Tensor, states: Sequence[SamplerState], blocked: Blocked | None) -> list[int]:
        return sample_batch(logits, states, blocked)
