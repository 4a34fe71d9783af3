"""CosyVoice3's vocoder: any chunking, any batch, and how far it looks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capture_fake import TracingCapture
from cosyvoice_runtime.vocoder.torch import HiFT, context
from cosyvoice_runtime.vocoder.torch.windows import GraphedWindows
from examples import examples
from small_hift import CAUSAL, OTHER_CAUSAL, random_mel, small_hift, streamed
from vocoder_calls import open_state, stream

CONFIGS = {"published": CAUSAL, "other": OTHER_CAUSAL}
ROUNDING = 1e-6
SIZES = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any)


def whole(hift: HiFT, mel: torch.Tensor) -> torch.Tensor:
    noise = torch.from_numpy(hift.utterance_noise(0).peek(mel.shape[1]))
    return hift(mel[None], noise[None])[0]


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=examples(8, fresh=40))
@given(sizes=SIZES)
def test_any_chunking_equals_the_whole_utterance(name: str, sizes: list[int]) -> None:
    config = CONFIGS[name]
    hift, mel = small_hift(config), random_mel(sum(sizes), config=config)
    found = torch.cat(streamed(hift, open_state(config, hift.utterance_noise(0)), mel, sizes))
    torch.testing.assert_close(found, whole(hift, mel), atol=ROUNDING, rtol=0)


def test_batch_rows_equal_single_runs() -> None:
    hift, sizes = small_hift(CAUSAL), ([30, 9, 12], [4, 40, 1], [20, 1, 3])
    mels = [random_mel(sum(row), seed, CAUSAL) for seed, row in enumerate(sizes)]
    states = [open_state(CAUSAL, hift.utterance_noise(0)) for _ in mels]
    chunks = [mel.split(row, dim=1) for mel, row in zip(mels, sizes, strict=True)]
    steps = [stream(hift, states, [row[step] for row in chunks], [step == 2] * 3) for step in range(3)]
    for row, mel in enumerate(mels):
        wave = torch.cat([step[row] for step in steps])
        torch.testing.assert_close(wave, whole(hift, mel), atol=ROUNDING, rtol=0)


def test_captured_windows_equal_whole_utterances() -> None:
    hift, capture, around = small_hift(OTHER_CAUSAL), TracingCapture(), context(OTHER_CAUSAL)
    longest = around.left + around.lookahead + 30
    graphed = GraphedWindows(hift, (1, 3), (longest,), capture)
    sizes = ([20, 25, 4], [9, 30, 14], [25, 3, 2])
    mels = [random_mel(sum(row), seed, OTHER_CAUSAL) for seed, row in enumerate(sizes)]
    states = [open_state(OTHER_CAUSAL, hift.utterance_noise(0)) for _ in mels]
    chunks = [mel.split(row, dim=1) for mel, row in zip(mels, sizes, strict=True)]
    before = capture.replays
    steps = [
        stream(hift, states, [row[step] for row in chunks], [step == 2] * 3, graphed) for step in range(3)
    ]
    assert capture.replays > before
    for row, mel in enumerate(mels):
        wave = torch.cat([step[row] for step in steps])
        torch.testing.assert_close(wave, whole(hift, mel), atol=ROUNDING, rtol=0)


def test_long_utterances_go_on_with_their_phase() -> None:
    hift, mel = small_hift(CAUSAL), random_mel(300, config=CAUSAL)
    found = torch.cat(streamed(hift, open_state(CAUSAL, hift.utterance_noise(0)), mel, [50] * 6))
    torch.testing.assert_close(found, whole(hift, mel), atol=ROUNDING, rtol=0)


def test_five_frames_are_held_back() -> None:
    hift, mel = small_hift(CAUSAL), random_mel(40, config=CAUSAL)
    around = context(CAUSAL)
    assert (around.lookahead, around.right, around.f0_lookahead) == (5, 5, 3)
    [wave] = stream(hift, [open_state(CAUSAL)], [mel], [False])
    assert len(wave) == 35 * CAUSAL.hop


@pytest.mark.parametrize("name", CONFIGS)
def test_no_frame_reaches_farther_than_the_context(name: str) -> None:
    config = CONFIGS[name]
    hift, mel, around = small_hift(config), random_mel(90, config=config), context(config)
    other = mel.clone()
    other[:, 50] += 1
    source = torch.randn(1, 90 * config.hop, generator=torch.Generator().manual_seed(1))
    changed = hift.decode(mel[None], source) != hift.decode(other[None], source)
    frames = changed[0].view(-1, config.hop).any(1).nonzero()
    assert 50 - around.right <= frames.min()
    assert frames.max() <= 50 + around.left
    f0 = (hift.f0(mel[None]) != hift.f0(other[None]))[0].nonzero()
    assert (f0.min(), f0.max()) == (50 - around.f0_lookahead, 58)


def test_a_shorter_wait_is_near_the_whole_utterance() -> None:
    hift, mel = small_hift(CAUSAL), random_mel(60, config=CAUSAL)
    [wave] = stream(hift, [open_state(CAUSAL, lookahead=2)], [mel], [False])
    assert len(wave) == 58 * CAUSAL.hop
    exact = hift(mel[None])[0]
    torch.testing.assert_close(wave[: 50 * CAUSAL.hop], exact[: 50 * CAUSAL.hop], atol=ROUNDING, rtol=0)


def test_phase_stands_still_within_a_frame() -> None:
    hift = small_hift(CAUSAL)
    source = hift.source(torch.full((1, 12), 213.7, dtype=torch.float64)).view(12, CAUSAL.hop)
    assert (source == source[:, :1]).all()
    assert len(source[:, 0].unique()) > 6


def test_every_utterance_hears_the_same_noise() -> None:
    hift = small_hift(CAUSAL)
    first, second = hift.utterance_noise(1), hift.utterance_noise(2)
    mark = first.mark()
    first.skip(600)  # 12 s: the table grows
    assert np.array_equal(first.peek(3), hift.utterance_noise(3).peek(603)[-3 * CAUSAL.hop :])
    first.rewind(mark)
    assert np.array_equal(first.peek(5), second.peek(5))
