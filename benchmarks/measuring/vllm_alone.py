"""vLLM with its own sampler: what its steps cost without the library's draws."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.engines.engine import OpenEngine, see_only
from cosyvoice_runtime.lm.engines.vllm import require_vllm
from cosyvoice_runtime.lm.engines.vllm.engine import (
    VllmEngine,
    VllmStatistics,
    VllmUtterance,
    engine_args,
    start,
)
from cosyvoice_runtime.lm.engines.vllm.export import PromptTables
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings


def prepare(settings: TensorrtLlmSettings) -> OpenEngine:
    """Like the engine ``vllm``, for greedy and nucleus requests of a fixed length."""
    require_vllm()
    see_only(settings.device, settings.engine)
    config = load_config(settings.checkpoint_dir).speech_lm
    return partial(_open, settings, config, PromptTables.read(settings.engine_dir))


class AloneEngine(VllmEngine):
    """vLLM draws as many ids as the utterance may have at least."""

    def params(self, utterance: VllmUtterance, most: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        options = utterance.options
        if options.strategy == "ras":
            raise InvalidInput("strategy", options.strategy, "vLLM has greedy and nucleus sampling")
        return SamplingParams(
            temperature=0.0 if options.strategy == "greedy" else options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_tokens=utterance.limits.min_tokens,
            max_tokens=most,
            stop_token_ids=list(self._config.stop_ids),
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )


def _open(settings: TensorrtLlmSettings, config: SpeechLMConfig, tables: PromptTables) -> VllmEngine:
    args = engine_args(settings, config, torch.cuda.get_device_properties(0).total_memory)
    llm = start(args | {"logits_processors": None})
    return AloneEngine(llm, settings, config, tables, VllmStatistics(Metrics(settings.name)))
