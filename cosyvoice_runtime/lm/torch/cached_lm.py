"""PyTorch's network over its cache, and `sampling` from logits on any device of PyTorch.

Candidates are selected where the logits are; then scores and candidates come to the host in one transfer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import integers, moved
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.running_batch import fed_slots
from cosyvoice_runtime.lm.sampling import Blocked, Choices, SamplerState, depth_of, draw, seen_ids
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder


def sample_batch(logits: Tensor, states: Sequence[SamplerState], blocked: Blocked | None = None) -> list[int]:
    """`sampling.sample_batch` from float32 logits [B, V]."""
    scores = _scores(logits, states)
    if blocked is not None:
        barred = moved(torch.from_numpy(blocked), scores.device)
        scores[:, -barred.shape[1] :].masked_fill_(barred, -torch.inf)
    depth = depth_of(states, scores.shape[1])
    return draw(_to_host(scores, *top_candidates(scores, depth)), states)


def top_candidates(scores: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Select as `sampling.top_candidates` does."""
    probs = scores.softmax(dim=-1)
    size = probs.shape[-1]
    rank = torch.arange(size - 1, -1, -1, device=probs.device)
    keys = (probs.view(torch.int32).long() << 32) | rank
    ids = size - 1 - (keys.topk(depth).values & 0xFFFFFFFF)
    return probs.gather(-1, ids), ids


def _scores(logits: Tensor, states: Sequence[SamplerState]) -> Tensor:
    """Log-probabilities [B, V] after temperature, then repetition penalty (the order of TensorRT-LLM)."""
    if any(state.options.temperature != 1 for state in states):
        logits = logits / logits.new_tensor([[state.options.temperature] for state in states])
    if any(state.options.repetition_penalty != 1 for state in states):
        penalty = logits.new_tensor([[state.options.repetition_penalty] for state in states])
        penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
        seen = torch.from_numpy(seen_ids(states, logits.shape[1])).to(logits.device)
        logits = torch.where(seen, penalised, logits)
    return logits.log_softmax(dim=-1)


def _to_host(scores: Tensor, probs: Tensor, ids: Tensor) -> Choices:
    """All three on the CPU as float32 after a single transfer (ids are exact: far below 2**24)."""
    joined = torch.cat([scores, probs, ids.float()], dim=1).cpu()
    scores, probs, ids = joined.split([scores.shape[1], probs.shape[1], ids.shape[1]], dim=1)
    return Choices(scores.numpy(), probs.numpy(), ids.long().numpy())


SPAN_STEP = 64
"""Steps attend to a multiple of this many cache positions: few distinct shapes, little excess."""


class CachedLM:
    """`running_batch.CachedNetwork` with logits as tensors."""

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
        embeddings = [self._lm.embed(prefill.segments) for prefill in group]
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
