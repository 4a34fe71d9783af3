"""This library's draws inside vLLM's step, as a logits processor of vLLM's engine core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from cosyvoice_runtime.checkpoint.lm_rows import read_recorded
from cosyvoice_runtime.lm import Generation
from cosyvoice_runtime.lm.engines.vllm import KEY
from cosyvoice_runtime.lm.engines.vllm.engine import VllmUtterance
from cosyvoice_runtime.lm.engines.vllm.export import not_finite_id
from cosyvoice_runtime.lm.running_batch import blocked_ids
from cosyvoice_runtime.lm.sampling import NOT_FINITE
from cosyvoice_runtime.lm.torch.speech_decoder import sample_batch


class VllmSequence(NamedTuple):
    """A request in vLLM's batch; ``output`` is vLLM's own list of its output ids, which grows as it runs."""

    generation: Generation
    output: Sequence[int]


class SpeechSampler(LogitsProcessor):
    """Draws a token of each sequence and leaves only its logit finite, so that vLLM's greedy choice takes it.

    All strategies are drawn here, so a seed gives the draws of `lm.sampling`; vLLM's samplers draw
    otherwise, and have no RAS. `not_finite_id` is drawn for a sequence whose logits are no distribution.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ARG002
        self._config = read_recorded(getattr(vllm_config.model_config.hf_config, KEY))
        self._sequences: dict[int, VllmSequence] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raise ValueError for a request that does not say how it is drawn."""
        VllmUtterance.from_extra_args(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests that join, leave or move in the batch."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._sequences.pop(index, None)
        for index, params, _, output in batch_update.added:
            utterance = VllmUtterance.from_extra_args(params.extra_args)
            self._sequences[index] = VllmSequence(utterance.generation(self._config), output)
        for source, target, direction in batch_update.moved:
            self._move(source, target, direction)

    @torch.inference_mode()
    def apply(self, logits: Tensor) -> Tensor:
        """Draw, and leave one finite value a sequence in the logits float32 [sequences, vocabulary]."""
        sequences = [self._sequences[index] for index in range(len(logits))]
        for sequence in sequences:
            _check_progress(sequence)
        tokens = self._draw(logits, [sequence.generation for sequence in sequences])
        return logits.fill_(-torch.inf).scatter_(1, torch.tensor(tokens, device=logits.device)[:, None], 0.0)

    def _draw(self, logits: Tensor, generations: Sequence[Generation]) -> list[int]:
        samplers = [generation.sampler for generation in generations]
        tokens = sample_batch(logits[:, : self._config.speech_rows], samplers, blocked_ids(generations))
        for generation, token in zip(generations, tokens, strict=True):
            generation.accept(token)
        broken = not_finite_id(self._config)
        return [broken if token == NOT_FINITE else token for token in tokens]

    def _move(self, source: int, target: int, direction: MoveDirectionality) -> None:
        displaced = self._sequences.get(target)
        self._sequences[target] = self._sequences.pop(source)
        if direction is MoveDirectionality.SWAP and displaced is not None:
            self._sequences[source] = displaced


def _check_progress(sequence: VllmSequence) -> None:
    """Refuse a draw that vLLM threw away, or a sequence computed anew: they would repeat or skip draws.

    The engine is set up so that neither happens: prompts are computed whole, and all requests fit into the
    cache.
    """
    drawn = len(sequence.generation.sampler.history)
    if len(sequence.output) != drawn:
        raise RuntimeError(f"vLLM has {len(sequence.output)} ids of a sequence for which {drawn} were drawn")
