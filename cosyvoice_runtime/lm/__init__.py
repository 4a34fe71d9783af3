"""Speech language model: text and speech tokens in, speech tokens out.

What needs PyTorch is imported when it is asked for: batches of other runtimes work without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cosyvoice_runtime.lm.cache import CacheFullError
from cosyvoice_runtime.lm.generation import Emission, FinishReason, Generation
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.running_batch import RunningBatch
from cosyvoice_runtime.lm.sampling import SamplingOptions

if TYPE_CHECKING:
    from cosyvoice_runtime.lm.torch.decoder import BatchDecoder, generate, generate_all
    from cosyvoice_runtime.lm.torch.kv_cache import KVCache, cache_bytes
    from cosyvoice_runtime.lm.torch.network import SpeechLM

ON_TORCH = {
    "BatchDecoder": "torch.decoder",
    "KVCache": "torch.kv_cache",
    "SpeechLM": "torch.network",
    "cache_bytes": "torch.kv_cache",
    "generate": "torch.decoder",
    "generate_all": "torch.decoder",
}
"""Modules by the names that they define."""

__all__ = [
    "BatchDecoder",
    "CacheFullError",
    "Emission",
    "FinishReason",
    "Generation",
    "KVCache",
    "Prompt",
    "RunningBatch",
    "SamplingOptions",
    "SpeechLM",
    "cache_bytes",
    "generate",
    "generate_all",
]


def __getattr__(name: str) -> object:
    if name not in ON_TORCH:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{ON_TORCH[name]}"), name)
