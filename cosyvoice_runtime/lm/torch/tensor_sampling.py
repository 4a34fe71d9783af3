"""`sampling` from logits on any device of PyTorch.

Candidates are selected where the logits are; then scores and candidates come to the host in one transfer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import moved
from cosyvoice_runtime.lm.sampling import Blocked, Choices, SamplerState, depth_of, draw, seen_ids


def sample(logits: Tensor, state: SamplerState) -> int:
    """Draw from the float32 logits [V] of one sequence; see `sampling.sample_batch`."""
    return sample_batch(logits[None], [state])[0]


def sample_batch(logits: Tensor, states: Sequence[SamplerState], blocked: Blocked | None = None) -> list[int]:
    """`sampling.sample_batch` from float32 logits [B, V]."""
    scores = _scores(logits, states)
    if blocked is not None:
        barred = moved(torch.from_numpy(blocked), scores.device)
        scores[:, -barred.shape[1] :].masked_fill_(barred, -torch.inf)
    depth = depth_of(states, scores.shape[1])
    return draw(_to_host(scores, *top_candidates(scores, depth)), states)


def top_candidates(scores: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """As `sampling.top_candidates`."""
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
