"""The engine ``vllm``: vLLM's engine core in this process (docs/engines.md).

:func:`register` is an entry point (``vllm.general_plugins``) of this project: vLLM calls it in each of its
processes, so the model is known wherever vLLM starts workers of its own.
"""

from __future__ import annotations

ARCHITECTURE = "CosyVoice2SpeechLM"
"""``architectures`` of an exported ``config.json``."""
KEY = "cosyvoice2"
"""Key of this library's own values in ``SamplingParams.extra_args`` and in ``config.json``."""


def register() -> None:
    """Register the model class; may be called again."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        # By name: importing the class here would initialise CUDA in processes that only start others.
        ModelRegistry.register_model(ARCHITECTURE, f"{__package__}.model:SpeechQwen2")
