"""Speech LMs with channels of tens of thousands, as Qwen2's, in half precision against float64."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from making import architecture, architecture_cosyvoice3
from making.random_tensors import random_tensors
from wide_range import error, wide_lm


def logits(config: SpeechLMConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    """Logits after every token of a prompt."""
    lm = SpeechLM.from_tensors(config, tensors, dtype=dtype)
    prompt = lm.embed(Prompt(range(20), prompt_speech=range(30)).segments())
    length = len(prompt)
    cache = KVCache(config, 1, length, dtype=dtype)
    return lm.logits(lm(prompt[None], torch.arange(length)[None], cache.view(0, 1), length))[0]


@pytest.mark.parametrize("family", [architecture, architecture_cosyvoice3], ids=["cosyvoice2", "cosyvoice3"])
@pytest.mark.parametrize(
    ("dtype", "largest", "most"),
    [
        (torch.float32, 1e7, 1e-5),
        (torch.bfloat16, 1e7, 0.02),
        (torch.bfloat16, 1e4, 0.02),
        (torch.float16, 1e4, 0.003),
    ],
)
@torch.inference_mode()
def test_large_channels(family: ModuleType, dtype: torch.dtype, largest: float, most: float) -> None:
    config = family.TINY.speech_lm
    tensors = wide_lm(dict(random_tensors("llm", family.TINY, seed=1)), largest, config.num_layers)
    expected = logits(config, tensors, torch.float64)
    assert error(logits(config, tensors, dtype), expected) < most
