"""CosyVoice-300M's speech LM in a batch: relative positions and a speaker, utterances side by side."""

from __future__ import annotations

import pytest
import torch

from capture_fake import TracingCapture, play_back
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.engines.torch import step_obstacle
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch import speech_decoder
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder, generate
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.transformer_lm import TransformerLM
from counted_draws import counted_sample_batch
from making.architecture_cosyvoice300m import TINY
from making.random_tensors import random_tensors

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
    alone = [generate(lm, prompt, option) for prompt, option in zip(PROMPTS, options, strict=True)]
    assert [(generation.tokens, generation.finish_reason) for generation in spoken] == alone


def test_speaker_is_heard(lm: TransformerLM) -> None:
    options = SamplingOptions(seed=1, max_tokens=30)
    other = Prompt(PROMPTS[0].text, speaker=[-value for value in SPEAKER])
    louder = Prompt(PROMPTS[0].text, speaker=[2 * value for value in SPEAKER])
    first, second, third = (generate(lm, prompt, options)[0] for prompt in (PROMPTS[0], other, louder))
    assert first != second
    assert first == third  # only the direction counts


@pytest.fixture(scope="module")
def ending() -> TransformerLM:
    """One that ends an utterance now and then."""
    tensors = dict(random_tensors("llm", TINY, 0))
    bias = tensors["llm_decoder.bias"].clone()
    bias[TINY.speech_lm.eos_id] += 3
    return TransformerLM.from_tensors(TINY.speech_lm, {**tensors, "llm_decoder.bias": bias})


@pytest.mark.parametrize(
    ("capture", "pool"),
    [(TracingCapture(), None), (play_back, CachePool(16, 12))],
    ids=["traced in slots", "played back in few pages"],
)
def test_captured_steps_draw_the_tokens_of_eager_ones(
    ending: TransformerLM, capture: GraphCapture, pool: CachePool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the same random numbers; utterances end at different steps and others take their slots."""
    monkeypatch.setattr(speech_decoder, "sample_batch", counted_sample_batch)
    spoken = []
    for options in ({}, {"capture": capture, "prefill_batch": 3, "pool": pool}):
        decoder = BatchDecoder(ending, slots=2, max_len=120, **options)
        waiting = [*enumerate(PROMPTS * 2)]
        running = []
        while waiting or decoder.busy:
            while waiting and decoder.free_slots:
                seed, prompt = waiting.pop(0)
                running.append(decoder.add(prompt, SamplingOptions(seed=seed, max_tokens=10 + 9 * seed)))
            decoder.step()
        spoken.append([(generation.tokens, generation.finish_reason) for generation in running])
    assert spoken[0] == spoken[1]
    assert {reason for _, reason in spoken[0]} == {FinishReason.LENGTH, FinishReason.STOP}


def test_a_sequence_that_has_ended_may_be_fed_its_end(lm: TransformerLM) -> None:
    """As captured steps do, which are launched before the host knows."""
    end = torch.tensor([lm.config.eos_id])
    logits = lm.decode_step(end, torch.tensor([3]), KVCache(lm.config, 1, 8).view(0, 1), 8)
    assert logits.isfinite().all()


def test_fused_kernels_are_not_for_it(lm: TransformerLM) -> None:
    assert "by distance" in str(step_obstacle(torch.device("cuda"), torch.bfloat16, lm.config))
