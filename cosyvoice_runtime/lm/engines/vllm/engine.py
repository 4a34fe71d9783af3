"""vLLM's `LLMEngine` as an `LmEngine`."""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any

import torch

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import FinishReason, Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import Progress
from cosyvoice_runtime.lm.engines.vllm.export import not_finite_id
from cosyvoice_runtime.lm.engines.vllm.prompt_tables import PromptTables
from cosyvoice_runtime.lm.engines.vllm.statistics import VllmStatistics
from cosyvoice_runtime.lm.engines.vllm.utterance import VllmUtterance
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.sampling import NOT_FINITE

MakeParams = Callable[[VllmUtterance, int], Any]
"""``vllm.SamplingParams`` for an utterance and the most ids it may have."""


class VllmEngine:
    """vLLM computes in the thread that calls `step`; its `SpeechSampler` draws.

    Both keep a `Generation` of each utterance: this side's says what is speech and when it has ended.

    Args:
        llm: a ``vllm.LLMEngine`` in this process.
        make_input: vLLM's input for embeddings [positions, hidden].
        use_stream: makes the calling thread submit to vLLM's stream.
        max_len: positions of one request, prompt and output together.
    """

    def __init__(
        self,
        llm: Any,
        make_params: MakeParams,
        make_input: Callable[[torch.Tensor], Any],
        use_stream: Callable[[], object],
        config: SpeechLMConfig,
        tables: PromptTables,
        statistics: VllmStatistics,
        slots: int,
        max_len: int,
    ) -> None:
        self.slots = slots
        self.prefill_batch = slots  # the library plans its own passes
        self._llm = llm
        self._make_params = make_params
        self._make_input = make_input
        self._use_stream = use_stream
        self._config = config
        self._tables = tables
        self._statistics = statistics
        self._max_len = max_len
        self._running: dict[int, Generation] = {}
        self._handles = itertools.count()

    def add(self, prompt: Prompt, options: SamplingOptions) -> int:
        prompt.check(self._config)
        embeddings = self._tables.embed(prompt.parts())
        room = self._room(len(embeddings), options)
        limits = TokenLimits.of(options, len(prompt.text))
        generation = Generation(self._config, options, prompt.prompt_speech, limits)
        seeded = dataclasses.replace(options, seed=generation.seed)
        utterance = VllmUtterance(seeded, prompt.prompt_speech, limits)
        most = max(1, min(limits.max_tokens, room))
        handle = next(self._handles)
        params = self._make_params(utterance, most)
        self._llm.add_request(str(handle), self._make_input(embeddings), params)
        self._running[handle] = generation
        return handle

    def step(self) -> list[Progress]:
        # vLLM keeps one stream per thread, and its work would be spread over two if it met this thread's
        # only half-way through a step.
        self._use_stream()
        begin = perf_counter()
        outputs = self._llm.step()
        self._statistics.step(perf_counter() - begin)
        progress = [self._advance(output) for output in outputs]
        self._show_load()
        return progress

    def cancel(self, handle: Hashable) -> None:
        assert isinstance(handle, int)
        del self._running[handle]
        self._llm.abort_request([str(handle)])
        self._show_load()

    def close(self) -> None:
        self._llm.engine_core.shutdown()
        del self._llm
        gc.collect()  # vLLM's objects refer to each other, and hold the GPU's memory
        torch.cuda.empty_cache()

    def _show_load(self) -> None:
        scheduler = self._llm.engine_core.engine_core.scheduler
        self._statistics.load(len(self._running), scheduler.kv_cache_manager.usage)

    def _room(self, positions: int, options: SamplingOptions) -> int:
        room = self._max_len - positions
        if room < 1:
            raise InvalidInput("prompt", f"{positions} positions", f"fewer than {self._max_len}")
        for field in ("min_tokens", "max_tokens"):
            wanted = getattr(options, field)
            if wanted is not None and wanted > room:
                raise InvalidInput(field, wanted, f"after this prompt there is room for {room}")
        return room

    def _advance(self, output: Any) -> Progress:
        handle, (completion,) = int(output.request_id), output.outputs
        generation = self._running[handle]
        tokens = [
            token for id_ in completion.token_ids if (token := self._accept(generation, id_)) is not None
        ]
        if output.finished:
            _finish(generation, completion.finish_reason)
        if generation.finish_reason is not None:
            del self._running[handle]
            if not output.finished:
                self._llm.abort_request([output.request_id])
        return Progress(handle, tokens, generation.finish_reason, generation.error)

    def _accept(self, generation: Generation, id_: int) -> int | None:
        return generation.accept(NOT_FINITE if id_ == not_finite_id(self._config) else id_)


def _finish(generation: Generation, reason: str) -> None:
    """End with vLLM's reason, unless the tokens have ended it already."""
    if reason == "length":
        generation.finish(FinishReason.LENGTH)
    else:
        failure = CosyVoiceError(f"vLLM ended this utterance ({reason})")
        generation.finish(FinishReason.ERROR, failure)
