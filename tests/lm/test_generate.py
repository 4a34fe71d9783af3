"""A single utterance."""

from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM


def test_tokens_come_with_the_reason(lm: SpeechLM) -> None:
    tokens, reason = generate(lm, Prompt([3, 1]), SamplingOptions(seed=4, min_tokens=7, max_tokens=7))
    assert len(tokens) == 7
    assert reason is FinishReason.LENGTH
    assert all(0 <= token < lm.config.speech_tokens for token in tokens)


def test_nucleus_with_a_repetition_penalty_runs_to_its_limit(lm: SpeechLM) -> None:
    options = SamplingOptions("nucleus", 50, 0.95, 0.8, 1.1, seed=42, min_tokens=30, max_tokens=30)
    tokens, reason = generate(lm, Prompt([3, 1], prompt_speech=[5]), options)
    assert (len(tokens), reason) == (30, FinishReason.LENGTH)


def test_bad_prompt_raises(lm: SpeechLM) -> None:
    with pytest.raises(InvalidInput):
        generate(lm, Prompt([]))


def test_failure_raises(config: SpeechLMConfig, published: dict[str, torch.Tensor]) -> None:
    broken = SpeechLM.from_tensors(
        config, {**published, "llm_decoder.bias": torch.full((config.speech_rows,), float("nan"))}
    )
    with pytest.raises(CosyVoiceError, match="speech_lm: NaN or infinity in the logits"):
        generate(broken, Prompt([1]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_to_the_end(
    config: SpeechLMConfig, published: dict[str, torch.Tensor], dtype: torch.dtype
) -> None:
    half = SpeechLM.from_tensors(config, published, dtype=dtype)
    tokens, _ = generate(half, Prompt([3, 1]), SamplingOptions(seed=4, min_tokens=7, max_tokens=7))
    assert len(tokens) == 7
