"""An utterance as a request of TensorRT-LLM's executor, and draws that its sampler has no way to make."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.merged_vocabulary import SILENT
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import EngineVocabulary
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.running_batch import blocked_ids
from cosyvoice_runtime.lm.sampling import NOT_FINITE
from cosyvoice_runtime.lm.torch.speech_decoder import sample_batch

MAX_TOP_K = 1024
"""TensorRT-LLM's kernels cut a larger value, with a warning in the log (``samplingTopKKernels.h``)."""
CERTAINLY_SILENT = 128.0
"""exp(-128) is 0 in float32."""


def drawn_by_library(options: SamplingOptions) -> bool:
    """Whether the `LibrarySampler` draws, because TensorRT-LLM has no sampler for these options."""
    return options.strategy == "ras"


@dataclass(frozen=True)
class RequestMaker:
    """Makes requests of utterances.

    Attributes:
        bindings: module ``tensorrt_llm.bindings.executor``.
        bias: see `BuiltEngine`.
        max_positions: most positions of one request.
    """

    bindings: Any
    vocabulary: EngineVocabulary
    bias: Tensor | None
    max_positions: int

    def make(
        self, prompt: Prompt, options: SamplingOptions, limits: TokenLimits, seed: int, client: int
    ) -> Any:
        """Make a request.

        Args:
            prompt: a prompt whose ids lie inside their tables.
            client: name of the request for the `LibrarySampler`.

        Raises:
            InvalidInput: the request does not fit into the engine, or TensorRT-LLM would draw in another way
                than asked.
        """
        ids = self.vocabulary.input_ids(prompt.all_text, prompt.prompt_speech)
        self._check_room(len(ids), limits)
        self._check_sampling(options)
        end = self.vocabulary.end_id
        return self.bindings.Request(
            input_token_ids=ids,
            max_tokens=limits.max_tokens,
            streaming=True,
            sampling_config=self._sampling_config(options, limits, seed),
            output_config=self.bindings.OutputConfig(exclude_input_from_output=True),
            end_id=end,
            pad_id=end,
            stop_words=[[stop] for stop in self.vocabulary.stop_ids if stop != end],
            client_id=client,
            **self._drawing(options),
        )

    def _drawing(self, options: SamplingOptions) -> dict[str, Any]:
        """Arguments that change the logits before TensorRT-LLM draws."""
        if drawn_by_library(options):
            return {"logits_post_processor_name": self.bindings.Request.BATCHED_POST_PROCESSOR_NAME}
        return {} if self.bias is None else {"embedding_bias": self.bias}

    def _sampling_config(self, options: SamplingOptions, limits: TokenLimits, seed: int) -> Any:
        if drawn_by_library(options):
            # The one id that the library leaves finite is taken as it is.
            return self.bindings.SamplingConfig(beam_width=1, top_k=1, min_tokens=0)
        greedy = options.strategy == "greedy"
        return self.bindings.SamplingConfig(
            beam_width=1,
            top_k=1 if greedy else options.top_k,
            top_p=1.0 if greedy else options.top_p,
            temperature=options.temperature,
            repetition_penalty=options.repetition_penalty,
            min_tokens=limits.min_tokens,
            seed=seed,
        )

    def _check_room(self, prompt: int, limits: TokenLimits) -> None:
        # TensorRT-LLM would shorten the output and say so in its log only.
        room = self.max_positions - prompt
        if room < 1:
            raise InvalidInput("prompt", f"{prompt} positions", f"fewer than {self.max_positions}")
        if limits.max_tokens > room:
            limit = f"after this prompt there is room for {room}"
            raise InvalidInput("max_tokens", limits.max_tokens, limit)

    def _check_sampling(self, options: SamplingOptions) -> None:
        if drawn_by_library(options):
            return
        if options.strategy == "nucleus" and options.top_k > MAX_TOP_K:
            limit = f"at most {MAX_TOP_K} in engine tensorrt_llm, or 0 for no limit"
            raise InvalidInput("top_k", options.top_k, limit)
        if -SILENT * min(options.repetition_penalty, 1.0) / options.temperature < CERTAINLY_SILENT:
            limit = f"with temperature {options.temperature:g} text could be drawn in engine tensorrt_llm"
            raise InvalidInput("repetition_penalty", options.repetition_penalty, limit)


def on_stream(pointer: int) -> AbstractContextManager[object]:
    """The stream on which TensorRT-LLM has computed the logits and will read them."""
    return torch.cuda.stream(torch.cuda.ExternalStream(pointer))


class LibrarySampler:
    """A batched logits post-processor: draws a token of each sequence and leaves only its logit finite.

    TensorRT-LLM calls it once a step, with the sequences that name it, and waits for it with all requests.

    Args:
        bias: see `BuiltEngine`.
    """

    def __init__(self, vocabulary: EngineVocabulary, bias: Tensor | None) -> None:
        self._vocabulary = vocabulary
        self._bias = bias
        self._generations: dict[int, Generation] = {}

    def enter(self, client: int, generation: Generation) -> None:
        """Draw for an utterance until `leave`; called before its request is enqueued."""
        self._generations[client] = generation

    def leave(self, client: int) -> CosyVoiceError | None:
        """Forget an utterance after its last response, and return the error of its draws, if there was one.

        It has no effect on an utterance that TensorRT-LLM draws for.
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
        """Draw for each sequence, in logits float32 [1, 1, output_rows] that are changed in place."""
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
        torch._foreach_copy_(rows, list(kept))  # This is one launch for all sequences.
