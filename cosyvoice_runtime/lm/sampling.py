"""Drawing speech tokens: each sequence of a batch by its own options and its own generator.

Selection runs where the logits are; then scores and candidates come to the host in one transfer and the
draws happen there. So a seed gives the same draws on every device.

B: sequences, V: speech rows of the head, K: candidates.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.transfer import moved

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

NOT_FINITE = -1
"""Drawn for a sequence whose logits are no distribution."""


class SamplerState:
    """What one utterance's draws depend on.

    Attributes:
        seed: of ``generator``; drawn afresh if the options name none.
        history: ids drawn so far, control ids included.
        prompt: speech ids that the repetition penalty counts as well.
    """

    def __init__(self, options: SamplingOptions, prompt: Sequence[int] = ()) -> None:
        self.options = options
        self.seed = secrets.randbits(63) if options.seed is None else options.seed
        self.generator = torch.Generator().manual_seed(self.seed)
        self.history: list[int] = []
        self.prompt = tuple(prompt)

    def repeats(self, token: int) -> bool:
        """Whether RAS rejects this draw."""
        options = self.options
        if options.strategy != "ras":
            return False
        return self.history[-options.window :].count(token) >= options.window * options.tau


def sample(logits: Tensor, state: SamplerState) -> int:
    """Draw from the logits [V] of one sequence; see `sample_batch`."""
    return sample_batch(logits[None], [state])[0]


def sample_batch(logits: Tensor, states: Sequence[SamplerState], blocked: Tensor | None = None) -> list[int]:
    """Draw one token per sequence; its draw does not depend on the others.

    Args:
        logits: [B, V] float32.
        states: one per sequence; the caller appends the token to ``history`` if it counts.
        blocked: [B, 3] bool on the host, control ids (the last three) that must not be drawn.

    Returns:
        B ids, `NOT_FINITE` for sequences whose logits hold nan or +inf.
    """
    scores = _scores(logits, states)
    if blocked is not None:
        scores[:, -blocked.shape[1] :].masked_fill_(moved(blocked, scores.device), -torch.inf)
    depth = min(max(state.options.candidates for state in states), scores.shape[1])
    scores, probs, ids = _to_host(scores, *top_candidates(scores, int(depth)))
    sizes = nucleus_sizes(probs.numpy(), states)
    tokens = ids.gather(1, _draw(probs, sizes, states)).long()[:, 0]
    _redraw_repeats(tokens, scores, states)
    tokens[probs[:, 0].isnan()] = NOT_FINITE
    return tokens.tolist()


def top_candidates(scores: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Probabilities [B, K] in descending order and their ids [B, K]; equal ones by ascending id."""
    probs = scores.softmax(dim=-1)
    size = probs.shape[-1]
    # Floats of one sign order like their bits. With the id below them keys are unique, so any top-k gives
    # the result of a stable sort, at a fraction of its cost.
    rank = torch.arange(size - 1, -1, -1, device=probs.device)
    keys = (probs.view(torch.int32).long() << 32) | rank
    ids = size - 1 - (keys.topk(depth).values & 0xFFFFFFFF)
    return probs.gather(-1, ids), ids


def nucleus_sizes(probs: FloatArray, states: Sequence[SamplerState]) -> IntArray:
    """Number of candidates [B] to choose from: ``top_k`` at most, and none after ``top_p`` is reached."""
    top_k = np.array([[state.options.candidates] for state in states])
    top_p = np.array([[state.options.top_p] for state in states], dtype=np.float32)
    over_all = np.array([[state.options.strategy == "ras"] for state in states])
    within = np.arange(probs.shape[1]) < top_k
    # Term by term in float32, as the reference does: a sum in another order can round across top_p.
    reached = np.add.accumulate(np.where(within, probs, np.float32(0)), axis=1)
    before = np.pad(reached[:, :-1], ((0, 0), (1, 0)))
    total = np.where(over_all, np.float32(1), reached[:, -1:])
    return np.asarray((within & (before < top_p * total)).sum(axis=1))


def _scores(logits: Tensor, states: Sequence[SamplerState]) -> Tensor:
    """Log-probabilities [B, V] after temperature, then repetition penalty (the order of TensorRT-LLM)."""
    if any(state.options.temperature != 1 for state in states):
        logits = logits / logits.new_tensor([[state.options.temperature] for state in states])
    if any(state.options.repetition_penalty != 1 for state in states):
        penalty = logits.new_tensor([[state.options.repetition_penalty] for state in states])
        penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
        logits = torch.where(_seen(logits, states), penalised, logits)
    return logits.log_softmax(dim=-1)


def _seen(logits: Tensor, states: Sequence[SamplerState]) -> Tensor:
    seen = np.zeros(logits.shape, dtype=bool)
    for ids, state in zip(seen, states, strict=True):
        if state.options.repetition_penalty != 1:
            ids[[*state.prompt, *state.history]] = True
    return torch.from_numpy(seen).to(logits.device)


def _to_host(scores: Tensor, probs: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All three on the CPU as float32 after a single transfer (ids are exact: far below 2**24)."""
    joined = torch.cat([scores, probs, ids.float()], dim=1).cpu()
    scores, probs, ids = joined.split([scores.shape[1], probs.shape[1], ids.shape[1]], dim=1)
    return scores, probs, ids.long()


def _draw(probs: Tensor, sizes: IntArray, states: Sequence[SamplerState]) -> Tensor:
    """Index [B, 1] of one candidate per sequence: the largest ratio of probability to exponential noise.

    This is what `torch.multinomial` does on the CPU, with one fill of as many values as candidates.
    """
    noise = torch.ones(probs.shape)
    for fill, size, state in zip(noise, sizes.tolist(), states, strict=True):
        if state.options.strategy != "greedy":
            fill[:size].exponential_(generator=state.generator)
    outside = torch.from_numpy(np.arange(probs.shape[1]) >= sizes[:, None])
    return (probs / noise).masked_fill_(outside, -1).argmax(dim=1, keepdim=True)


def _redraw_repeats(tokens: Tensor, scores: Tensor, states: Sequence[SamplerState]) -> None:
    """Replace draws that RAS rejects by one from all other tokens, in place."""
    repeating = [index for index, token in enumerate(tokens.tolist()) if states[index].repeats(token)]
    if not repeating:
        return
    others = scores[repeating].scatter_(1, tokens[repeating, None], -torch.inf)
    noise = torch.empty(others.shape)
    for fill, index in zip(noise, repeating, strict=True):
        fill.exponential_(generator=states[index].generator)
    tokens[repeating] = (others.softmax(dim=1) / noise).argmax(dim=1)
