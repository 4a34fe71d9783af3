"""What TensorRT-LLM's decoder does with a row of logits, in its order, on the CPU.

``cpp/tensorrt_llm/kernels/penaltyKernels.cu``: embedding bias, temperature, repetition penalty (over ids of
prompt and output that are below the vocabulary's size), minimum length (masks the one end id); then
``samplingTopKKernels`` (top-k, top-p within it) or ``samplingTopPKernels``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trtllm_fake.bindings import Request

TOP_K_MAX = 1024
DEFAULT_MIN_LENGTH = 1


def processed(logits: Tensor, request: Request, output: Sequence[int]) -> Tensor:
    """Logits [V] that are drawn from."""
    sampling = request.sampling_config
    logits = logits.float().clone()
    if request.embedding_bias is not None:
        logits += request.embedding_bias
    if sampling.temperature is not None:
        logits /= sampling.temperature
    if sampling.repetition_penalty is not None:
        seen = [id_ for id_ in {*request.input_token_ids, *output} if id_ < len(logits)]
        value, penalty = logits[seen], sampling.repetition_penalty
        logits[seen] = torch.where(value < 0, value * penalty, value / penalty)
    least = DEFAULT_MIN_LENGTH if sampling.min_tokens is None else sampling.min_tokens
    if len(output) < least:
        logits[request.end_id] = -torch.inf
    return logits


def draw(logits: Tensor, request: Request, generator: torch.Generator) -> int:
    """An id, from logits [V] as `processed` gives them."""
    top_k, top_p = _regularised(request.sampling_config)
    probs = logits.softmax(dim=-1)
    values, ids = probs.sort(descending=True, stable=True)
    if top_k:
        values, ids = values[:top_k], ids[:top_k]
    before = values.cumsum(0) - values
    kept = values.where(before < top_p * values.sum(), 0.0)
    return int(ids[torch.multinomial(kept, 1, generator=generator)])


def _regularised(sampling) -> tuple[int, float]:
    top_k, top_p = sampling.top_k or 0, sampling.top_p or 0.0
    if top_k == 0 and top_p == 0.0:
        return 1, 1.0
    return min(top_k, TOP_K_MAX), top_p or 1.0
