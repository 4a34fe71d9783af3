"""The vocoder on ONNX Runtime against torch's, whole and streamed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runtime import vocoders

from cosyvoice_runtime.vocoder.onnx.vocoder import OnnxVocoder
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream, context
from examples import examples
from small_hift import CAUSAL, CONFIGS, OTHER_CAUSAL, random_mel

ANY_CONFIG = {**CONFIGS, "causal": CAUSAL, "other causal": OTHER_CAUSAL}
TOLERANCE = 1e-5
Both = tuple[HiFT, OnnxVocoder]


@pytest.fixture(scope="module", params=ANY_CONFIG)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return vocoders(tmp_path_factory.mktemp("hift"), ANY_CONFIG[request.param])


def spoken(vocoder, mel: torch.Tensor, sizes: list[int], seed: int | None, lookahead=None) -> np.ndarray:
    """The waveform of mel that comes in pieces of these sizes, and the rest at the end."""
    state, waves = vocoder.open(seed, lookahead), []
    for size in (*sizes, mel.shape[1]):
        piece, mel = mel[:, :size], mel[:, size:]
        given = piece if isinstance(vocoder, HiFTStream) else piece.numpy()
        last = not mel.shape[1]
        waves += vocoder.sent(vocoder.advance([state], [given], [last]))()
        if last:
            break
    return np.concatenate(waves)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("frames", [1, 2, 40])
def test_whole_utterances_are_torchs(both: Both, frames: int, seed: int | None):
    hift, vocoder = both
    mel = random_mel(frames, frames, hift.config)
    expected = spoken(HiFTStream(hift), mel, [], seed)
    found = spoken(vocoder, mel, [], seed)
    assert found.dtype == np.float32
    assert len(found) == hift.config.hop * frames
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)


@settings(max_examples=examples(8, fresh=30))
@given(st.integers(1, 130), st.lists(st.integers(0, 60), max_size=5))
def test_any_pieces_give_the_whole_utterance(both: Both, frames: int, sizes: list[int]):
    vocoder = both[1]
    mel = random_mel(frames, frames, vocoder.config)
    whole = spoken(vocoder, mel, [], 5)
    np.testing.assert_allclose(spoken(vocoder, mel, sizes, 5), whole, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("lookahead", [0, 3])
def test_guessed_frames_are_torchs(both: Both, lookahead: int):
    hift, vocoder = both
    mel = random_mel(90, 2, hift.config)
    torchs, ours = (spoken(each, mel, [25, 10, 30], 1, lookahead) for each in (HiFTStream(hift), vocoder))
    np.testing.assert_allclose(ours, torchs, atol=TOLERANCE, rtol=0)
    assert context(hift.config).lookahead > lookahead


def test_utterances_side_by_side_are_each_alone(both: Both):
    vocoder = both[1]
    mels = [random_mel(frames, frames, vocoder.config) for frames in (30, 1, 55)]
    states = [vocoder.open(row) for row in range(3)]
    waves = vocoder.advance(states, [mel.numpy() for mel in mels], [True] * 3)
    for row, (mel, wave) in enumerate(zip(mels, waves, strict=True)):
        np.testing.assert_array_equal(wave.array(), spoken(vocoder, mel, [], row))


def test_mel_after_the_last_or_of_another_shape_is_refused(both: Both):
    vocoder = both[1]
    state = vocoder.open(None)
    with pytest.raises(ValueError, match="expected"):
        vocoder.advance([state], [np.zeros((3, 5), np.float32)], [False])
    mel = random_mel(5, 1, vocoder.config).numpy()
    vocoder.advance([state], [mel], [True])
    with pytest.raises(ValueError, match="after the last"):
        vocoder.advance([state], [mel], [True])
