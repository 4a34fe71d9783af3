"""Streams whose captured calls take the flow's steps in fused kernels, against the plain modules."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.engine.runtimes.torch_graphs import capture_graphs
from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from prompts import prompt_of_tensors

PAGES = 64
ROWS = 4
TOLERANCE = 1e-3
"""|difference| / |mel| after ten steps in float16, against float32."""
STRETCHES = [[28, 25, 50, 17], [53, 25, 25, 3], [28, 100, 25, 25], [40]]
"""Tokens that each utterance gets from turn to turn."""


def load(checkpoint: Path, dtype: str, kernels: str) -> FlowStream:
    settings = Token2WavSettings(
        checkpoint_dir=checkpoint,
        device="cuda",
        dtype=dtype,
        cuda_graphs=dtype == "float16",
        kernels=kernels,
        max_batch=ROWS,
        max_flow_pages=PAGES,
    ).resolved(Machine(cores=1, gpu=True))
    token2wav: Token2Wav = load_token2wav(settings)
    capture_graphs(token2wav, settings, settings.most_batch)
    return token2wav.flow


@pytest.fixture(scope="module")
def truth(checkpoint: Path) -> FlowStream:
    return load(checkpoint, "float32", "plain")


@pytest.fixture(scope="module")
def fused(checkpoint: Path) -> FlowStream:
    pytest.importorskip("triton")
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("the GPU's compute capability is below 8.0")
    return load(checkpoint, "float16", "fused")


def prompt(flow: Flow, seed: int) -> FlowPrompt:
    config, generator = flow.config, torch.Generator().manual_seed(seed)
    length = 20 * seed
    return prompt_of_tensors(
        tokens=torch.randint(config.token_vocab_size, (length,), generator=generator),
        mel=-6 + 2 * torch.randn(config.frames_per_token * length, config.mel_bins, generator=generator),
        speaker=torch.randn(config.speaker_dim, generator=generator),
    )


def spoken(stream: FlowStream) -> list[torch.Tensor]:
    """Mel of all utterances, side by side."""
    states = [stream.open(prompt(stream.flow, seed)) for seed in range(len(STRETCHES))]
    mels: list[list[torch.Tensor]] = [[] for _ in states]
    generator = torch.Generator().manual_seed(9)
    for turn in range(max(map(len, STRETCHES))):
        rows = [row for row, stretches in enumerate(STRETCHES) if turn < len(stretches)]
        for row in rows:
            tokens = torch.randint(6561, (STRETCHES[row][turn],), generator=generator).tolist()
            states[row].push(tokens, last=turn + 1 == len(STRETCHES[row]))
        for row, mel in zip(rows, stream.advance([states[row] for row in rows]), strict=True):
            mels[row].append(mel.float().cpu())
    for state in states:
        stream.close(state)
    return [torch.cat(mel, dim=1) for mel in mels]


def test_fused_streams_equal_plain_float32_streams(truth, fused):
    assert fused.fused
    fused.eager.count = 0
    actual, expected = spoken(fused), spoken(truth)
    assert fused.eager.count == 0
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        assert float((one - other).norm() / other.norm()) < TOLERANCE


def test_the_same_batch_gives_the_same_bits(fused):
    first, again = spoken(fused), spoken(fused)
    assert all(map(torch.equal, first, again))
    assert fused.pool.free_pages == PAGES
