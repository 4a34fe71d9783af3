"""Speech language model: text and speech tokens in, speech tokens out."""

from cosyvoice_runtime.lm.cache import CacheFullError, KVCache, cache_bytes
from cosyvoice_runtime.lm.decoder import BatchDecoder
from cosyvoice_runtime.lm.generate import generate, generate_all
from cosyvoice_runtime.lm.generation import Emission, Generation
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.lm.network import SpeechLM
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling_options import SamplingOptions

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
