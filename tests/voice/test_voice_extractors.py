"""Speech tokenizer and speaker encoder: interface checks, batches, limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from cosyvoice_runtime.audio.mel import centred_fbank, log_mel_spectrogram
from cosyvoice_runtime.errors import CheckpointError, InvalidInput, NotFiniteError
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer
from fake_voices import make_audio
from onnx_graphs import write_encoder, write_tokenizer

WAVEFORMS = [make_audio(seed, seconds).samples for seed, seconds in enumerate([1.0, 0.7, 1.0, 0.513, 1.0])]


def test_tokens_are_the_graph_of_the_log_mel(tmp_path: Path) -> None:
    tokens = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx"))(WAVEFORMS[1])
    expected = np.abs(log_mel_spectrogram(WAVEFORMS[1])[:, ::4].max(axis=0) * 1000)
    assert tokens.dtype == np.int32
    assert tokens.shape == (18,)
    assert np.abs(tokens - expected).max() < 1.01


def test_embedding_is_the_graph_of_the_centred_fbank(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "e.onnx", dimension=192)
    louder = SpeakerEncoder(path)(2 * WAVEFORMS[0])
    assert louder.shape == (192,)
    assert np.allclose(louder, SpeakerEncoder(path)(WAVEFORMS[0]), atol=1e-3)
    assert centred_fbank(WAVEFORMS[0]).mean() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("batch", ["batch", 1])
def test_token_batch_row_equals_single_run(tmp_path: Path, batch: int | str) -> None:
    tokenizer = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx", batch=batch))
    rows = tokenizer.batch(WAVEFORMS)
    assert all(np.array_equal(row, tokenizer(samples)) for row, samples in zip(rows, WAVEFORMS, strict=True))


def test_embedding_batch_row_equals_single_run(tmp_path: Path) -> None:
    encoder = SpeakerEncoder(write_encoder(tmp_path / "e.onnx"))
    rows = encoder.batch(WAVEFORMS)
    for row, samples in zip(rows, WAVEFORMS, strict=True):
        assert np.allclose(row, encoder(samples), atol=1e-5)


def test_empty_batch_is_empty(tmp_path: Path) -> None:
    assert SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx")).batch([]) == []


@pytest.mark.parametrize("dimension", [1, 24, 192])
def test_embedding_dimension_comes_from_the_graph(tmp_path: Path, dimension: int) -> None:
    assert SpeakerEncoder(write_encoder(tmp_path / "e.onnx", dimension=dimension)).dimension == dimension


def test_int64_tokens_become_int32(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "t.onnx", output_type=TensorProto.INT64)
    assert SpeechTokenizer(path)(WAVEFORMS[0]).dtype == np.int32


def test_more_than_30_seconds_are_refused(tmp_path: Path) -> None:
    tokenizer = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx"))
    assert tokenizer(np.zeros(480_000, np.float32)).shape == (750,)
    with pytest.raises(InvalidInput, match=r"30\.10 s.*at most 30 s") as caught:
        tokenizer(np.zeros(481_600, np.float32))
    assert caught.value.field == "reference_wav"


@pytest.mark.parametrize(("offset", "stranger"), [(-3000.0, "-"), (6561.0, "")])
def test_ids_outside_the_codes_are_refused(tmp_path: Path, offset: float, stranger: str) -> None:
    tokenizer = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx", offset=offset))
    with pytest.raises(CheckpointError, match=rf"t\.onnx: token id {stranger}\d+, expected 0 to 6560"):
        tokenizer(WAVEFORMS[0])


@pytest.mark.parametrize("output_type", [TensorProto.INT32, TensorProto.INT64])
def test_ids_made_of_nan_are_no_codes(tmp_path: Path, output_type: int) -> None:
    tokenizer = SpeechTokenizer(
        write_tokenizer(tmp_path / "t.onnx", output_type=output_type, offset=float("nan"))
    )
    with pytest.raises(NotFiniteError, match="speech_tokenizer: NaN or infinity"):
        tokenizer(WAVEFORMS[0])


def test_number_of_codes_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    tokenizer = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx"), num_codes=200)
    with pytest.raises(CheckpointError, match="expected 0 to 199"):
        tokenizer(WAVEFORMS[0])


def test_another_token_rate_is_refused(tmp_path: Path) -> None:
    tokenizer = SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx", stride=2))
    with pytest.raises(CheckpointError, match="50 tokens for 100 frames"):
        tokenizer(WAVEFORMS[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": 1}, "1 inputs, expected 2"),
        ({"bins": 80}, r"feats is tensor\(float\).*expected tensor\(float\).*128"),
        ({"frames": 3000}, "feats is .*3000.*'frames'"),
        ({"batch": 4}, "feats is .*4.*'batch'"),
        ({"length_type": TensorProto.INT64}, r"feats_length is tensor\(int64\).*expected tensor\(int32\)"),
        (
            {"output_type": TensorProto.FLOAT},
            r"indices is tensor\(float\).*tensor\(int32\) or tensor\(int64\)",
        ),
    ],
)
def test_tokenizer_with_another_interface_is_refused_at_load(
    tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"t\.onnx: {message}"):
        SpeechTokenizer(write_tokenizer(tmp_path / "t.onnx", **changes))


def test_encoder_with_another_interface_is_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"e\.onnx: input is .*64.*expected .*80"):
        SpeakerEncoder(write_encoder(tmp_path / "e.onnx", bins=64))
    with pytest.raises(CheckpointError, match=r"f\.onnx: output of shape \(1, 100, 24\), expected \[B, D\]"):
        SpeakerEncoder(write_encoder(tmp_path / "f.onnx", pool=False))


@pytest.mark.parametrize("load", [SpeechTokenizer, SpeakerEncoder])
@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_unreadable_graph_is_named(
    tmp_path: Path, load: Callable[[Path], object], content: bytes | None
) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.onnx: (no such file|not a readable ONNX model)"):
        load(path)


def test_standins_of_a_made_checkpoint_have_the_interface(tmp_path: Path) -> None:
    standins = pytest.importorskip("making.onnx_standins")
    standins.write_speech_tokenizer(tmp_path / "t.onnx", 0)
    standins.write_speaker_encoder(tmp_path / "e.onnx", 40, 0)
    assert SpeechTokenizer(tmp_path / "t.onnx")(WAVEFORMS[0]).shape == (25,)
    assert SpeakerEncoder(tmp_path / "e.onnx").dimension == 40
