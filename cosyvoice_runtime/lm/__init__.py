"""Speech language model: text and speech tokens in, speech tokens out."""

from __future__ import annotations

from cosyvoice_runtime.lm.cache import CacheFullError
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.running_batch import RunningBatch
from cosyvoice_runtime.lm.sampling import SamplingOptions

__all__ = ["CacheFullError", "FinishReason", "Generation", "Prompt", "RunningBatch", "SamplingOptions"]
