"""The library's own draws inside TensorRT-LLM's step, for what its sampler can't do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import Generation
from cosyvoice_runtime.lm.engines.tensorrt_llm.conversion import EngineVocabulary
from cosyvoice_runtime.lm.host_steps import blocked_ids
from cosyvoice_runtime.lm.sampling import NOT_FINITE
from cosyvoice_runtime.lm.torch.tensor_sampling import sample_batch


def on_stream(pointer: int) -> AbstractContextManager[object]:
    """The stream on which TensorRT-LLM has computed the logits and will read them."""
    return torch.cuda.stream(torch.cuda.ExternalStream(pointer))


class LibrarySampler:
    """A batched logits post-processor: draws a token of each sequence and leaves only its logit finite.

    TensorRT-LLM calls it once a step with the sequences that name it, in its own thread, and waits: so do
    those of all other requests.

    Args:
        bias: see `BuiltEngine`.
    """

    def __init__(self, vocabulary: EngineVocabulary, bias: Tensor | None) -> None:
        self._vocabulary = vocabulary
        self._bias = bias
        self._generations: dict[int, Generation] = {}

    def enter(self, client: int, generation: Generation) -> None:
        """Draw for this utterance until `leave`; before its request is enqueued."""
        self._generations[client] = generation

    def leave(self, client: int) -> CosyVoiceError | None:
        """Forget an utterance, after its last response; returns what went wrong with it here.

        Without effect on one that TensorRT-LLM draws for.
        """
        generation = self._generations.pop(client, None)
        return None if generation is None else generation.error

    @torch.no_grad()
    def __call__(
        self,
        _request_ids: Sequence[int],
        logits: Sequence[Tensor],
        _token_ids: Sequence[Sequence[Sequence[int]]],
        stream: int,
        client_ids: Sequence[int],
    ) -> None:
        """
        Args:
            logits: float32 [1, 1, output_rows] of each sequence, changed in place.
            client_ids: as `enter` was told.
        """
        with on_stream(stream):
            tokens = self._draw(logits, [self._generations[client] for client in client_ids])
            self._leave_only(logits, tokens)

    def _draw(self, logits: Sequence[Tensor], generations: Sequence[Generation]) -> list[int]:
        """A speech id of each sequence; the end of speech where the logits are broken."""
        samplers = [generation.sampler for generation in generations]
        tokens = sample_batch(self._speech_logits(logits), samplers, blocked_ids(generations))
        for generation, token in zip(generations, tokens, strict=True):
            generation.accept(token)
        end = self._vocabulary.end_row
        return [end if token == NOT_FINITE else token for token in tokens]

    def _speech_logits(self, logits: Sequence[Tensor]) -> Tensor:
        """float32 [sequences, speech_rows], with the bias."""
        scores = torch.cat([row.view(1, -1)[:, self._vocabulary.speech] for row in logits]).float()
        if self._bias is None:
            return scores
        self._bias = self._bias.to(scores.device)
        return scores + self._bias[self._vocabulary.speech]

    def _leave_only(self, logits: Sequence[Tensor], tokens: Sequence[int]) -> None:
        rows = [row.view(-1) for row in logits]
        ids = torch.tensor(tokens, device=rows[0].device)[:, None] + self._vocabulary.speech_offset
        kept = rows[0].new_full((len(rows), len(rows[0])), -torch.inf).scatter_(1, ids, 0.0)
        torch._foreach_copy_(rows, list(kept))  # one launch for all sequences
