"""Streamed audio equals offline audio, sample for sample, on the tiny checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream
from examples import examples
from prompts import prompt_of_tensors

PAGES = 40
TOLERANCE = 1e-3
"""Of the waveform (full scale is 1). Mel differs by 1e-6; the phase, a running sum of F0, makes that 1e-4."""

cuts = st.lists(st.integers(1, 60), max_size=8)
"""Tokens of each push but the last."""


@pytest.fixture(scope="module")
def token2wav(tiny_checkpoint) -> Token2Wav:
    layout, config = Layout(tiny_checkpoint), load_config(tiny_checkpoint)
    flow = Flow.from_tensors(config.flow, load_tensors(layout, "flow", config))
    vocoder = HiFT.from_tensors(config.vocoder, load_tensors(layout, "hift", config))
    return Token2Wav(FlowStream(flow, PAGES), HiFTStream(vocoder), lookahead_frames=None)


def random_prompt(flow: Flow, length: int, seed: int) -> FlowPrompt:
    generator = torch.Generator().manual_seed(seed)
    config = flow.config
    return prompt_of_tensors(
        tokens=torch.randint(config.token_vocab_size, (length,), generator=generator),
        mel=-6 + 2 * torch.randn(config.frames_per_token * length, config.mel_bins, generator=generator),
        speaker=torch.randn(config.speaker_dim, generator=generator),
    )


def random_tokens(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randint(6561, (length,), generator=generator).tolist()


def speak(
    token2wav: Token2Wav, prompt: FlowPrompt, tokens: list[int], cut: Sequence[int] = (), speed: float = 1.0
) -> torch.Tensor:
    """The waveform of tokens that are pushed in groups of these sizes, and the rest at the end."""
    state = token2wav.open(prompt, noise_seed=7, speed=speed)
    waves, start = [], 0
    try:
        for end in (*itertools.accumulate(cut), None):
            last = end is None or end >= len(tokens)
            token2wav.push(state, tokens[start:] if last else tokens[start:end], last)
            waves += map(torch.from_numpy, token2wav.advance([state]))
            if last:
                return torch.cat(waves)
            start = end
    finally:
        token2wav.close(state)


@pytest.mark.slow
@settings(max_examples=examples(6, fresh=40))
@given(
    prompt_length=st.integers(0, 90),
    length=st.integers(1, 160),
    cut=cuts,
    speed=st.sampled_from([1.0, 1.0, 1.0, 0.8, 1.3]),
    seed=st.integers(0, 99),
)
def test_streamed_equals_offline(token2wav, prompt_length, length, cut, speed, seed):
    prompt = random_prompt(token2wav.flow.flow, prompt_length, seed)
    tokens = random_tokens(length, seed)
    offline = speak(token2wav, prompt, tokens, speed=speed)
    streamed = speak(token2wav, prompt, tokens, cut, speed)
    torch.testing.assert_close(streamed, offline, atol=TOLERANCE, rtol=0)
    if speed == 1.0:
        assert len(offline) == 960 * length
    assert offline.abs().max() > 0.01
    assert token2wav.flow.pool.free_pages == PAGES


def test_utterance_without_tokens_is_empty(token2wav):
    assert speak(token2wav, random_prompt(token2wav.flow.flow, 30, 1), []).shape == (0,)


def test_refused_token_leaves_the_utterance_as_it_was(token2wav):
    prompt = random_prompt(token2wav.flow.flow, 30, 1)
    state = token2wav.open(prompt, noise_seed=1)
    with pytest.raises(InvalidInput, match="speech_tokens: 6561"):
        token2wav.push(state, [*random_tokens(40, 1), 6561])
    token2wav.close(state)
    assert token2wav.flow.pool.free_pages == PAGES


def test_utterances_side_by_side_equal_utterances_alone(token2wav):
    flow = token2wav.flow.flow
    prompts = [random_prompt(flow, length, length) for length in (0, 20, 41)]
    tokens = [random_tokens(length, length) for length in (80, 30, 55)]
    states = [token2wav.open(prompt, noise_seed=7) for prompt in prompts]
    waves: list[list[torch.Tensor]] = [[] for _ in states]
    for start in range(0, 80, 20):
        for state, row in zip(states, tokens, strict=True):
            if start < len(row):
                token2wav.push(state, row[start : start + 20], last=start + 20 >= len(row))
        active = [index for index, row in enumerate(tokens) if start < len(row)]
        for index, wave in zip(active, token2wav.advance([states[i] for i in active]), strict=True):
            waves[index].append(torch.from_numpy(wave))
    for state in states:
        token2wav.close(state)
    for prompt, row, wave in zip(prompts, tokens, waves, strict=True):
        alone = speak(token2wav, prompt, row)
        torch.testing.assert_close(torch.cat(wave), alone, atol=TOLERANCE, rtol=0)
