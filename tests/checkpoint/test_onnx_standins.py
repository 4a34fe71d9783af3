from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from cosyvoice_runtime.checkpoint import Layout, load_config


@pytest.fixture(scope="module")
def speech_tokenizer(tiny_checkpoint: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(Layout(tiny_checkpoint).speech_tokenizer)


@pytest.fixture(scope="module")
def speaker_encoder(tiny_checkpoint: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(Layout(tiny_checkpoint).speaker_encoder)


def tokens(session: onnxruntime.InferenceSession, mel: np.ndarray) -> np.ndarray:
    length = np.full(len(mel), mel.shape[2], dtype=np.int32)
    return session.run(None, {"feats": mel.astype(np.float32), "feats_length": length})[0]


def speech_like(seed: int, frames: int) -> np.ndarray:
    """Slowly changing spectra in the range of a whisper log-mel."""
    noise = np.random.default_rng(seed)
    shapes = noise.standard_normal((1, 128, frames // 10 + 2)).repeat(10, axis=2)[:, :, :frames]
    return 0.4 * shapes - 0.2


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 97, 98, 99, 100, 3000])
def test_one_token_for_each_four_frames_begun(
    speech_tokenizer: onnxruntime.InferenceSession, frames: int
) -> None:
    ids = tokens(speech_tokenizer, speech_like(0, frames))
    assert ids.shape == (1, -(-frames // 4))
    assert ids.dtype == np.int32
    assert ids.min() >= 0
    assert ids.max() < 6561


def test_tokens_depend_on_the_sound(speech_tokenizer: onnxruntime.InferenceSession) -> None:
    one, other = (tokens(speech_tokenizer, speech_like(seed, 400))[0] for seed in (1, 2))
    assert (one != other).mean() > 0.9
    assert len(set(one.tolist())) > 20


def test_silence_is_one_constant_token(speech_tokenizer: onnxruntime.InferenceSession) -> None:
    assert len(set(tokens(speech_tokenizer, np.full((1, 128, 50), -1.5))[0].tolist())) == 1


def test_tokenizer_batch_row_equals_single_run(speech_tokenizer: onnxruntime.InferenceSession) -> None:
    mels = [speech_like(seed, 60) for seed in range(3)]
    batch = tokens(speech_tokenizer, np.concatenate(mels))
    assert np.array_equal(batch, np.concatenate([tokens(speech_tokenizer, mel) for mel in mels]))


def embedding(session: onnxruntime.InferenceSession, fbank: np.ndarray) -> np.ndarray:
    return session.run(None, {"input": fbank.astype(np.float32)})[0]


def speaker(seed: int, frames: int, content: int = 0) -> np.ndarray:
    """Mean-free features whose spread over the bins belongs to the speaker."""
    spread = np.random.default_rng(seed).uniform(0.5, 3, size=80)
    fbank = spread * np.random.default_rng(content).standard_normal((1, frames, 80))
    return fbank - fbank.mean(axis=1, keepdims=True)


def test_speaker_embedding_has_the_configured_width(
    speaker_encoder: onnxruntime.InferenceSession, tiny_checkpoint: Path
) -> None:
    width = load_config(tiny_checkpoint).flow.speaker_dim
    assert embedding(speaker_encoder, speaker(0, 37)).shape == (1, width)
    assert embedding(speaker_encoder, np.zeros((3, 5, 80))).shape == (3, width)


def test_speakers_are_nearer_to_themselves_than_to_others(
    speaker_encoder: onnxruntime.InferenceSession,
) -> None:
    same = embedding(speaker_encoder, speaker(1, 500)), embedding(speaker_encoder, speaker(1, 400, content=1))
    other = embedding(speaker_encoder, speaker(2, 500))
    assert np.linalg.norm(same[0] - same[1]) < 0.3 * np.linalg.norm(same[0] - other)
