from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from audio_signals import tone

from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.audio.write import audio_writer
from cosyvoice_runtime.errors import InvalidInput

RATE = 24_000
SAMPLES = tone(330, 0.2, RATE)


def write(target: Path | BytesIO, **options: str) -> None:
    with audio_writer(target, RATE, **options) as append:
        for chunk in SAMPLES.split(1000):
            append(chunk)


@pytest.mark.parametrize(
    ("name", "encoding", "tolerance"),
    [("a.wav", "pcm16", 2**-16), ("a.flac", "pcm16", 2**-16), ("a.wav", "float32", 0.0)],
)
def test_chunks_written_are_the_audio_read(
    tmp_path: Path, name: str, encoding: str, tolerance: float
) -> None:
    write(tmp_path / name, encoding=encoding)
    audio = read_audio(tmp_path / name)
    assert audio.rate == RATE
    assert audio.samples.shape == SAMPLES.shape
    assert (audio.samples - SAMPLES).abs().max() <= tolerance


def test_pcm16_read_and_written_again_is_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "first.wav")
    with audio_writer(tmp_path / "second.wav", RATE) as append:
        append(read_audio(tmp_path / "first.wav").samples)
    assert (tmp_path / "first.wav").read_bytes() == (tmp_path / "second.wav").read_bytes()


def test_raw_needs_no_seeking_and_leaves_the_stream_open() -> None:
    class Pipe(BytesIO):
        def seek(self, *_: int) -> int:
            raise OSError("not seekable")

    pipe = Pipe()
    write(pipe, container="raw", encoding="float32")
    assert not pipe.closed
    assert np.array_equal(np.frombuffer(pipe.getvalue(), "<f4"), SAMPLES.numpy())


def test_wav_to_a_stream_equals_wav_to_a_file(tmp_path: Path) -> None:
    stream = BytesIO()
    write(stream, container="wav")
    write(tmp_path / "a.wav")
    assert stream.getvalue() == (tmp_path / "a.wav").read_bytes()


def test_pcm16_clips_beyond_full_scale() -> None:
    stream = BytesIO()
    with audio_writer(stream, RATE, "raw") as append:
        append(torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]))
    assert np.frombuffer(stream.getvalue(), "<i2").tolist() == [-32768, -32768, 0, 32767, 32767]


@pytest.mark.parametrize(
    ("target", "container", "encoding", "field"),
    [
        ("a.mp4", None, "pcm16", "target"),
        (BytesIO(), None, "pcm16", "container"),
        (BytesIO(), "mp4", "pcm16", "container"),
        (BytesIO(), "wav", "pcm8", "encoding"),
        (BytesIO(), "flac", "float32", "encoding"),
    ],
)
def test_what_cannot_be_written_is_named(
    target: str | BytesIO, container: str | None, encoding: str, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught, audio_writer(target, RATE, container, encoding):
        pass
    assert caught.value.field == field
