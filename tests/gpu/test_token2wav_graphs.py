"""Flow and vocoder with replayed graphs against the same networks launched kernel by kernel."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.engine.runtimes.torch_runtime import open_runtime
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from prompts import prompt_of_tensors

PAGES = 96
ROWS = 4
SHARE = 0.02
"""Of a waveform's level, by which rounding may move it (root mean square); a wrong page moves it by 1."""


def load(checkpoint: Path, cuda_graphs: bool, device: str = "cuda") -> Token2Wav:
    settings = Token2WavSettings(
        checkpoint_dir=checkpoint,
        device=device,
        dtype="float32",
        cuda_graphs=cuda_graphs,
        max_batch=ROWS,
        max_flow_pages=PAGES,
    )
    return open_runtime(settings.resolved(Machine(cores=1, gpu=True))).token2wav


@pytest.fixture(scope="module")
def eager(checkpoint: Path) -> Token2Wav:
    return load(checkpoint, cuda_graphs=False)


@pytest.fixture(scope="module")
def graphed(checkpoint: Path) -> Token2Wav:
    return load(checkpoint, cuda_graphs=True)


def prompt(token2wav: Token2Wav, length: int, seed: int) -> FlowPrompt:
    config, generator = token2wav.flow.flow.config, torch.Generator().manual_seed(seed)
    return prompt_of_tensors(
        tokens=torch.randint(config.token_vocab_size, (length,), generator=generator),
        mel=-6 + 2 * torch.randn(config.frames_per_token * length, config.mel_bins, generator=generator),
        speaker=torch.randn(config.speaker_dim, generator=generator),
    )


def speech(count: int, seed: int) -> list[int]:
    return torch.randint(6561, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def spoken(token2wav: Token2Wav, lengths: list[tuple[int, int]], edges: list[int]) -> list[torch.Tensor]:
    """Utterances of (prompt, speech) tokens side by side, each cut at those edges that lie within it."""
    states = [
        token2wav.open(prompt(token2wav, of_prompt, seed), seed)
        for seed, (of_prompt, _) in enumerate(lengths)
    ]
    tokens = [speech(count, seed) for seed, (_, count) in enumerate(lengths)]
    waves: list[list[torch.Tensor]] = [[] for _ in states]
    for start, end in itertools.pairwise([0, *edges, max(map(len, tokens))]):
        active = [row for row, given in enumerate(tokens) if start < len(given)]
        for row in active:
            token2wav.push(states[row], tokens[row][start:end], last=end >= len(tokens[row]))
        for row, wave in zip(active, token2wav.advance([states[row] for row in active]), strict=True):
            waves[row].append(torch.from_numpy(wave))
    for state in states:
        token2wav.close(state)
    return [torch.cat(each) for each in waves]


def assert_equal(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        assert one.isfinite().all()
        moved = (one - other).square().mean().sqrt()
        assert moved <= SHARE * other.square().mean().sqrt()


@pytest.mark.parametrize(
    "lengths",
    [
        [(30, 60)],
        [(0, 90), (75, 40)],
        [(30, 60), (31, 61), (57, 100)],
        [(25, 30)] * ROWS,
        [(10, 35), (20, 35), (30, 35), (40, 35), (50, 35), (60, 35)],  # more than one call holds
    ],
    ids=lambda lengths: f"{len(lengths)} utterances",
)
def test_replayed_streams_equal_eager_streams_and_whole_utterances(eager, graphed, lengths, replays):
    edges = [28, 53, 78]
    expected = spoken(eager, lengths, edges)
    assert not replays
    actual = spoken(graphed, lengths, edges)
    assert replays
    assert_equal(actual, expected)
    assert_equal(actual, spoken(eager, lengths, []))
    assert graphed.flow.pool.free_pages == PAGES


def test_the_same_utterance_again_is_the_same_samples(graphed, replays):
    """Whatever other calls have left in the graphs' buffers."""
    first = spoken(graphed, [(30, 60)], [28])
    spoken(graphed, [(70, 90)] * ROWS, [40, 60])
    again = spoken(graphed, [(30, 60)], [28])
    assert replays
    assert torch.equal(first[0], again[0])


def test_another_gpu_speaks_the_same(eager, checkpoint):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    lengths, edges = [(30, 60), (31, 61)], [28, 53]
    elsewhere = load(checkpoint, True, "cuda:1")
    assert str(elsewhere.vocoder.device) == "cuda:1"
    assert_equal(spoken(elsewhere, lengths, edges), spoken(eager, lengths, edges))
