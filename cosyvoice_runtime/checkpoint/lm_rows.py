"""What every speech LM on a Qwen2 has, whether its family has a tensor for it or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig

T = TypeVar("T", bound=Any)
"""A tensor of PyTorch or an array of numpy."""


def control_table(config: SpeechLMConfig, tensors: Mapping[str, T]) -> T:
    """Embeddings of sos and of the task id, ``[2, hidden]``: a table, or two rows of the speech table."""
    if config.control_rows is None:
        return tensors["llm_embedding.weight"]
    return tensors["speech_embedding.weight"][list(config.control_rows)]


def head_bias(config: SpeechLMConfig, tensors: Mapping[str, T]) -> T:
    """Of the output head, ``[speech_rows]``; zeros where it has none, for programs that add one."""
    return tensors["llm_decoder.bias"] if config.head_bias else tensors["llm_decoder.weight"][:, 0] * 0
