"""An utterance as a request of TensorRT-LLM's executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cosyvoice_runtime.checkpoint.huggingface import SILENT
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.conversion import EngineVocabulary
from cosyvoice_runtime.lm.generation import TokenLimits

MAX_TOP_K = 1024
"""TensorRT-LLM's kernels cut more than this, with a warning in the log (``samplingTopKKernels.h``)."""
CERTAINLY_SILENT = 128.0
"""exp(-128) is 0 in float32."""


def drawn_by_library(options: SamplingOptions) -> bool:
    """Whether TensorRT-LLM has no sampler for this; `LibrarySampler` draws then."""
    return options.strategy == "ras"


@dataclass(frozen=True)
class RequestMaker:
    """
    Attributes:
        bindings: module ``tensorrt_llm.bindings.executor``.
        bias: see `BuiltEngine`.
        max_positions: of one request.
    """

    bindings: Any
    vocabulary: EngineVocabulary
    bias: Tensor | None
    max_positions: int

    def make(
        self, prompt: Prompt, options: SamplingOptions, limits: TokenLimits, seed: int, client: int
    ) -> Any:
        """
        Args:
            prompt: with ids inside their tables.
            client: given back to the `LibrarySampler`.

        Raises:
            InvalidInput: the request does not fit into the engine, or TensorRT-LLM would draw something else
                than what was asked for.
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
        """What changes the logits before TensorRT-LLM draws."""
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
