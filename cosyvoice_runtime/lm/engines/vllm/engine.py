"""vLLM's `LLMEngine` as an `LmEngine`."""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import FinishReason, Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import Progress
from cosyvoice_runtime.lm.engines.vllm import KEY
from cosyvoice_runtime.lm.engines.vllm.export import PromptTables, not_finite_id
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.sampling import NOT_FINITE
from cosyvoice_runtime.metrics import Metrics


@dataclass(frozen=True)
class VllmUtterance:
    """
    Attributes:
        options: with a seed.
        prompt_speech: codes that the repetition penalty counts as well.
    """

    options: SamplingOptions
    prompt_speech: Sequence[int]
    limits: TokenLimits

    def generation(self, config: SpeechLMConfig) -> Generation:
        """A fresh record of it, with nothing drawn yet."""
        return Generation(config, self.options, self.prompt_speech, self.limits)

    def as_extra_args(self) -> dict[str, Any]:
        """Plain values, which survive the way to another process."""
        return {
            KEY: {
                "options": asdict(self.options),
                "prompt_speech": list(self.prompt_speech),
                "limits": list(self.limits),
            }
        }

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> VllmUtterance:
        """
        Raises:
            ValueError: they are not from :meth:`as_extra_args`.
        """
        if not extra_args or KEY not in extra_args:
            raise ValueError(f"a request to this model needs extra_args[{KEY!r}]")
        values = extra_args[KEY]
        options = SamplingOptions(**values["options"])
        return cls(options, values["prompt_speech"], TokenLimits(*values["limits"]))


STEP_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class VllmStatistics:
    """vLLM's own statistics would come with a Prometheus registry and a log of theirs."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.gauge("cosyvoice_vllm_active_requests", "Requests in vLLM's engine.")
        self._cache = metrics.gauge("cosyvoice_vllm_kv_cache_usage", "Share of the KV cache in use, 0 to 1.")
        self._step = metrics.histogram("cosyvoice_vllm_step_seconds", "Duration of a step.", STEP_BUCKETS_S)

    def step(self, seconds: float) -> None:
        """A step has taken so long."""
        self._step.observe(seconds)

    def load(self, requests: int, cache_usage: float) -> None:
        """What is there after a step or a cancellation."""
        self._requests.set(requests)
        self._cache.set(cache_usage)


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
