from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import soundfile
from audio_signals import tone

from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.errors import InvalidInput

RATE = 22_050
STEREO = np.stack([tone(440, 0.75, RATE), tone(880, 0.75, RATE)], axis=1)


@pytest.mark.parametrize(
    ("container", "subtype", "tolerance"),
    [
        ("WAV", "FLOAT", 0.0),
        ("WAV", "PCM_24", 2**-22),
        ("WAV", "PCM_16", 2**-14),
        ("FLAC", "PCM_16", 2**-14),
        ("OGG", "VORBIS", 0.1),
        ("MP3", "MPEG_LAYER_III", 0.1),
    ],
)
def test_every_container_is_read_at_its_own_rate_and_mixed_by_the_mean(
    container: str, subtype: str, tolerance: float
) -> None:
    file = BytesIO()
    soundfile.write(file, STEREO, RATE, subtype=subtype, format=container)
    audio = read_audio(file.getvalue())
    assert audio.rate == RATE
    assert audio.samples.dtype == np.float32
    overlap = min(len(audio.samples), len(STEREO))
    assert overlap >= 0.9 * len(STEREO)
    if container != "MP3":  # its encoder delays the signal
        difference = audio.samples[:overlap] - STEREO.mean(axis=1)[:overlap]
        assert np.abs(difference).max() <= tolerance


def test_path_bytes_and_file_object_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "voice.wav"
    soundfile.write(path, STEREO, RATE)
    with open(path, "rb") as file:
        from_file = read_audio(file)
    from_path, from_bytes, from_text = read_audio(path), read_audio(path.read_bytes()), read_audio(str(path))
    for audio in (from_bytes, from_file, from_text):
        assert np.array_equal(audio.samples, from_path.samples)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"voice\.wav.*no such file") as caught:
        read_audio(tmp_path / "voice.wav", field="reference_wav")
    assert caught.value.field == "reference_wav"


@pytest.mark.parametrize("name", ["voice.wav", "voice.raw", "voice.txt"])
def test_what_is_no_audio_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this is no audio file at all")
    with pytest.raises(InvalidInput, match=rf"{name}.* expected a wav") as caught:
        read_audio(path, field="reference_wav")
    assert caught.value.field == "reference_wav"


@pytest.mark.parametrize("content", [b"", b"RIFF"], ids=["nothing", "head"])
def test_truncated_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput, match=f"{len(content)} bytes"):
        read_audio(content)


def test_too_long_a_file_is_refused_before_more_of_it_is_decoded() -> None:
    file = BytesIO()
    soundfile.write(file, tone(440, 600.0, RATE), RATE, format="WAV")
    with pytest.raises(InvalidInput, match="more than 60 s, and at most 30 s can go with a transcript"):
        read_audio(file)
    assert file.tell() < len(file.getvalue()) / 8


@pytest.mark.parametrize("seconds", [0.5, 30.0])
def test_file_of_the_least_and_the_greatest_length_is_read(seconds: float) -> None:
    file = BytesIO()
    soundfile.write(file, tone(440, seconds, RATE), RATE, format="WAV")
    assert read_audio(file.getvalue()).seconds == seconds


def test_only_what_nobody_gives_the_words_of_is_cut() -> None:
    file = BytesIO()
    soundfile.write(file, tone(440, 31.0, RATE), RATE, format="WAV")
    assert read_audio(file, wordless=True).seconds == 30
    with pytest.raises(InvalidInput, match=r"31\.00 s"):
        read_audio(file)


@pytest.mark.parametrize("claimed", [0, 2**36 - 1], ids=["unknown", "too many"])
def test_flac_is_read_to_its_end_where_its_header_does_not_know_it(claimed: int) -> None:
    file = BytesIO()
    soundfile.write(file, STEREO, RATE, format="FLAC")
    content = bytearray(file.getvalue())
    content[21] = content[21] & 0xF0 | claimed >> 32  # of STREAMINFO: 36 bits that count samples
    content[22:26] = (claimed & 0xFFFFFFFF).to_bytes(4, "big")
    assert len(read_audio(bytes(content)).samples) == len(STEREO)


def test_flac_that_was_encoded_as_it_came_is_read() -> None:
    pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    from cosyvoice_client.encoders import make_encoder

    encoder = make_encoder("flac", RATE, RATE)
    content = encoder.feed(STEREO[:, 0].astype(np.float32)) + encoder.finish()
    assert np.abs(read_audio(content).samples - STEREO[:, 0]).max() < 2**-14
