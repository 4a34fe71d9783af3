"""Signals of a made checkpoint stay where a trained model's would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.checkpoint import Layout, ModelConfig, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import special_token_ids
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from making.architecture import TINY, qwen2_json
from making.random_tensors import random_tensors
from prompts import prompt_of_tensors

SEEDS = range(3)
DEEPER = replace(
    TINY,
    speech_lm=replace(TINY.speech_lm, hidden_size=128, num_layers=12, num_heads=8, num_kv_heads=1),
    vocoder=replace(TINY.vocoder, base_channels=64, f0_channels=64),
)


@torch.no_grad()
def stop_probability(config: ModelConfig, seed: int, text_length: int, ratio: int) -> torch.Tensor:
    """Of end of speech after 0, 1, ... of ``ratio * text_length`` random speech tokens."""
    from transformers import Qwen2Config, Qwen2Model  # It takes seconds, and one test process needs it.

    tensors = dict(random_tensors("llm", config, seed))
    prefix = "llm.model.model."
    model = Qwen2Model(Qwen2Config(**qwen2_json(config.speech_lm, special_token_ids(1000)))).eval()
    model.load_state_dict(
        {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    )
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(1000, (text_length,), generator=generator)
    speech = torch.randint(6561, (ratio * text_length,), generator=generator)
    sos, task = tensors["llm_embedding.weight"].split(1)
    table = tensors[f"{prefix}embed_tokens.weight"]
    inputs = torch.cat([sos, table[text], task, tensors["speech_embedding.weight"][speech]])
    hidden = model(inputs_embeds=inputs[None]).last_hidden_state[0, text_length + 1 :]
    logits = hidden @ tensors["llm_decoder.weight"].T + tensors["llm_decoder.bias"]
    best = logits.topk(25).values  # the candidates that sampling keeps
    return (logits[:, config.speech_lm.eos_id] - best.logsumexp(dim=-1)).exp()


@pytest.mark.parametrize("config", [TINY, DEEPER])
@pytest.mark.parametrize("text_length", [5, 40])
@pytest.mark.parametrize("seed", SEEDS)
def test_speech_ends_between_4_and_9_tokens_per_text_token(
    config: ModelConfig, text_length: int, seed: int
) -> None:
    stop = stop_probability(config, seed, text_length, ratio=10)
    going_on = (1 - stop.clamp(max=1)).cumprod(dim=0)
    assert going_on[4 * text_length] > 0.7
    assert going_on[9 * text_length] < 0.01


@torch.no_grad()
def synthesized_mel(directory: Path, token_seed: int) -> torch.Tensor:
    config = load_config(directory)
    generator = torch.Generator().manual_seed(token_seed)
    flow = Flow.from_tensors(config.flow, load_tensors(Layout(directory), "flow", config))
    prompt = prompt_of_tensors(
        tokens=torch.randint(6561, (25,), generator=generator),
        mel=2 * torch.randn(50, config.flow.mel_bins, generator=generator) - 6,
        speaker=torch.ones(config.flow.speaker_dim),
    )
    tokens = torch.randint(6561, (75,), generator=generator).tolist()
    return flow.generate([prompt], [tokens])[0]


def test_mel_is_in_the_range_of_log_mels_and_follows_the_tokens(tiny_checkpoint: Path) -> None:
    mel, other = (synthesized_mel(tiny_checkpoint, seed) for seed in (0, 1))
    assert -7 < mel.mean() < -5
    assert 1 < mel.std() < 3
    assert mel.max() < 3
    assert (mel - other).square().mean().sqrt() > 0.3


@pytest.mark.parametrize("config", [TINY, DEEPER])
@pytest.mark.parametrize("seed", SEEDS)
def test_waveform_is_audible_voiced_and_not_clipped(config: ModelConfig, seed: int) -> None:
    vocoder = config.vocoder
    generator = torch.Generator().manual_seed(seed)
    hift = HiFT.from_tensors(vocoder, dict(random_tensors("hift", config, seed)))
    mel = 1.8 * torch.randn(1, vocoder.mel_bins, 150, generator=generator) - 6
    f0 = hift.f0(mel)
    assert 80 < f0.median() < 350
    assert (f0 > vocoder.voiced_threshold_hz).float().mean() > 0.9
    waveform = hift(mel, torch.randn(1, 150 * vocoder.hop, generator=generator))
    assert 0.03 < waveform.std() < 0.2
    assert (waveform.abs() >= vocoder.audio_limit).float().mean() < 0.001
    silent_source = hift.decode(mel, torch.zeros_like(waveform))
    assert (waveform - silent_source).std() > 0.2 * waveform.std()
