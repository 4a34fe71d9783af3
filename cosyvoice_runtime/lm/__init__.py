"""Speech language model: text and speech tokens in, speech tokens out."""

from cosyvoice_runtime.lm.decoder import BatchDecoder
from cosyvoice_runtime.lm.generate import generate, generate_all
from cosyvoice_runtime.lm.generation import Emission, FinishReason, Generation
from cosyvoice_runtime.lm.network import CacheFullError, KVCache, SpeechLM, cache_bytes
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions

__all__ = [
    "BatchDecoder",
    "CacheFullError",
    "Emission",
    "FinishReason",
    "Generation",
    "KVCache",
    "Prompt",
    "SamplingOptions",
    "SpeechLM",
    "cache_bytes",
    "generate",
    "generate_all",
]
