"""The speech LM of each family, picked by the class of its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig, SpeechLMConfig, TransformerLMConfig
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder
from cosyvoice_runtime.lm.torch.transformer_lm import TransformerLM

_NETWORKS: dict[type, Callable[..., SpeechDecoder]] = {
    SpeechLMConfig: SpeechLM.from_tensors,
    OneTableSpeechLMConfig: SpeechLM.from_tensors,
    TransformerLMConfig: TransformerLM.from_tensors,
}


def load_speech_lm(
    config: SpeechLMConfig,
    tensors: Mapping[str, Tensor],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> SpeechDecoder:
    """Network with the weights of ``llm.pt``, given under their published names.

    Raises:
        CheckpointError: a tensor is missing, unknown or has another shape.
    """
    return _NETWORKS[type(config)](config, tensors, device, dtype)
