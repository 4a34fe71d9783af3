"""CosyVoice-300M's speech LM in a batch: relative positions and a speaker, utterances side by side."""

from __future__ import annotations

import pytest
import torch

from capture_fake import TracingCapture
from cosyvoice_runtime.checkpoint.making.architecture_cosyvoice300m import TINY
from cosyvoice_runtime.checkpoint.making.random_tensors import random_tensors
from cosyvoice_runtime.lm.cache_pages import CachePool
from cosyvoice_runtime.lm.decoder import BatchDecoder
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.single_utterance import generate_all
from cosyvoice_runtime.lm.transformer_lm import TransformerLM

SPEAKER = torch.randn(TINY.speech_lm.speaker_dim, generator=torch.Generator().manual_seed(1)).tolist()
PROMPTS = [
    Prompt([5, 6, 7], speaker=SPEAKER),
    Prompt([8, 9], prompt_text=[3, 4, 5, 6], prompt_speech=list(range(40)), speaker=SPEAKER),
    Prompt([10] * 12, prompt_text=[7]),
]


@pytest.fixture(scope="module")
def lm() -> TransformerLM:
    return TransformerLM.from_tensors(TINY.speech_lm, dict(random_tensors("llm", TINY, 0)))


@pytest.mark.parametrize(
    "pool", [None, CachePool(16, 24), CachePool(16, 8)], ids=["slots", "pages", "few pages"]
)
@pytest.mark.parametrize("prefill_batch", [1, 3])
def test_utterances_side_by_side_are_those_spoken_alone(
    lm: TransformerLM, prefill_batch: int, pool: CachePool | None
) -> None:
    options = [SamplingOptions(seed=seed, max_tokens=30) for seed in range(3)]
    decoder = BatchDecoder(lm, slots=3, max_len=120, prefill_batch=prefill_batch, pool=pool)
    spoken = [decoder.add(prompt, option) for prompt, option in zip(PROMPTS, options, strict=True)]
    while any(generation.finish_reason is None for generation in spoken):
        decoder.step()
    alone = [generate_all(lm, prompt, option) for prompt, option in zip(PROMPTS, options, strict=True)]
    assert [(generation.tokens, generation.finish_reason) for generation in spoken] == alone


def test_speaker_is_heard(lm: TransformerLM) -> None:
    options = SamplingOptions(seed=1, max_tokens=30)
    other = Prompt(PROMPTS[0].text, speaker=[-value for value in SPEAKER])
    louder = Prompt(PROMPTS[0].text, speaker=[2 * value for value in SPEAKER])
    first, second, third = (generate_all(lm, prompt, options)[0] for prompt in (PROMPTS[0], other, louder))
    assert first != second
    assert first == third  # only the direction counts


def test_its_steps_are_not_captured(lm: TransformerLM) -> None:
    assert not lm.can_be_captured
    with pytest.raises(ValueError, match="not those of a TransformerLM"):
        BatchDecoder(lm, slots=1, max_len=60, capture=TracingCapture())
