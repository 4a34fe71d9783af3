"""The speech LM in TensorRT-LLM's checkpoint format, and how an engine is built from it.

Nothing here imports ``tensorrt_llm`` but ``speech_model``, which ``trtllm-build`` loads.
"""

from cosyvoice_runtime.lm.engines.tensorrt_llm.conversion.convert import ConversionOptions, convert
from cosyvoice_runtime.lm.engines.tensorrt_llm.conversion.vocabulary import LAYOUTS, EngineVocabulary

__all__ = ["LAYOUTS", "ConversionOptions", "EngineVocabulary", "convert"]
