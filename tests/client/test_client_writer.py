"""Files that grow while audio arrives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_client import AudioChunk, InvalidArgumentError, audio_writer, g711, recorded
from cosyvoice_client.pcm import pcm16
from cosyvoice_client.resampler import StreamResampler
from cosyvoice_client.writer import PYAV, check_target
from full_disk import full_disk

FIRST = np.array([0.0, 0.5, -0.5], np.float32)
SECOND = np.array([1.0, -1.0, 2.0, -2.0], np.float32)
BOTH = [0, 16384, -16384, 32767, -32768, 32767, -32768]


def read(path):
    if path.suffix in (".raw", ".pcm"):
        return list(np.frombuffer(path.read_bytes(), "<i2"))
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == 24000
    return list(samples)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.raw", "a.pcm", "a.WAV"])
def test_chunks_follow_each_other(tmp_path, name):
    with audio_writer(tmp_path / name) as write:
        write(FIRST)
        write(SECOND)
    assert read(tmp_path / name) == BOTH


def test_recorded_chunks_are_in_a_file_of_their_rate_when_they_are_told(tmp_path):
    target = tmp_path / "a.wav"
    chunks = [AudioChunk(samples, 0.0, sample_rate=22_050) for samples in (FIRST, SECOND)]
    told = recorded(target, chunks)
    assert not target.exists()
    assert next(told) is chunks[0]
    samples, rate = soundfile.read(target, dtype="int16")
    assert (list(samples), rate) == (BOTH[:3], 22_050)
    assert list(told) == chunks[1:]
    assert list(soundfile.read(target, dtype="int16")[0]) == BOTH


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
@pytest.mark.parametrize("rate", [8_000, 22_050, 24_000])
def test_file_of_g711_has_8000_samples_a_second(tmp_path, law, rate):
    speech = (0.3 * np.sin(np.arange(rate) * 0.05)).astype(np.float32)
    with audio_writer(tmp_path / f"a.{law}", rate) as write:
        for part in np.split(speech, [1000, 1001]):
            write(part)
    resampler = StreamResampler(rate, 8_000)
    whole = speech if rate == 8_000 else np.concatenate([resampler.push(speech), resampler.finish()])
    assert (tmp_path / f"a.{law}").read_bytes() == g711.encode(law, pcm16(whole))


@pytest.mark.parametrize("name", ["a.mp3", "a.aac", "a.opus"])
def test_encoded_file_of_a_rate_that_not_every_codec_has_lasts_as_long(tmp_path, name):
    av = pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    with audio_writer(tmp_path / name, 22_050) as write:
        write((0.3 * np.sin(np.arange(22_050) * 0.05)).astype(np.float32))
    with av.open(str(tmp_path / name)) as file:
        seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
    assert abs(seconds - 1.0) < 0.1


@pytest.mark.parametrize("name", ["a.wav", "a.raw"])
def test_file_is_valid_after_every_chunk(tmp_path, name):
    with audio_writer(tmp_path / name) as write:
        if name == "a.wav":
            assert read(tmp_path / name) == []
        write(FIRST)
        assert read(tmp_path / name) == BOTH[:3]
        write(SECOND)
        assert read(tmp_path / name) == BOTH


@pytest.mark.parametrize("samples", [500, 20_000])
@pytest.mark.parametrize("name", ["a.flac", "a.mp3"])
def test_compressed_file_for_which_there_is_no_room_is_an_error(tmp_path, name, samples, capfd):
    if name != "a.flac":
        pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    noise = 0.3 * np.random.default_rng(0).standard_normal(samples, np.float32)
    full = pytest.raises(InvalidArgumentError, match=f"{name}: File too large")
    with full_disk(100), full, audio_writer(tmp_path / name) as write:
        write(noise)
    assert capfd.readouterr().err == ""


def test_closed_standard_output_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(InvalidArgumentError, match="output -: standard output is closed"):
        check_target("-")


@pytest.mark.parametrize("name", ["a.wav", "a.raw"])
def test_chunk_for_which_there_is_no_room_is_an_error_and_the_file_stays_valid(tmp_path, name):
    target = tmp_path / name
    with full_disk(1000), audio_writer(target) as write:
        write(FIRST)
        with pytest.raises(InvalidArgumentError, match=f"{name}: File too large"):
            write(np.zeros(1000, np.float32))
    assert read(target)[:3] == BOTH[:3]
    if name == "a.wav":
        assert target.stat().st_size == 44 + 2 * len(read(target))


@pytest.mark.parametrize(
    ("name", "format"), [("a.mp3", "mp3"), ("a.opus", "opus"), ("a.ogg", "opus"), ("a.aac", "aac")]
)
def test_encoded_file_grows_with_the_samples_and_holds_them_all(tmp_path, name, format):
    pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    from decoded import DELAY_SAMPLES, FRAME_SAMPLES, decode

    tone = (0.3 * np.sin(np.arange(24_000) * 0.05)).astype(np.float32)
    with audio_writer(tmp_path / name) as write:
        write(tone)
        heard = len(decode((tmp_path / name).read_bytes(), format)) + DELAY_SAMPLES.get(format, 0)
        assert heard > 20_000
        write(tone)
    heard = decode((tmp_path / name).read_bytes(), format)
    assert 0 <= len(heard) - 2 * len(tone) < FRAME_SAMPLES[format]
    assert np.abs(heard[4800:43_200]).max() == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("suffix", [".mp3", ".opus", ".ogg", ".aac"])
def test_format_that_needs_pyav_says_so_where_it_is_missing(tmp_path, monkeypatch, suffix):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InvalidArgumentError, match=r"needs PyAV: pip install av=="):
        check_target(tmp_path / f"a{suffix}")
    check_target(tmp_path / "a.wav")


def test_version_of_pyav_is_the_front_s():
    front = (Path(__file__).parents[2] / "requirements" / "front.txt").read_text("utf-8")
    assert f"\n{PYAV} \\\n" in front  # hashes follow


def test_audio_read_and_written_again_is_the_same_bytes(tmp_path):
    samples = np.sin(np.arange(2000, dtype=np.float32))
    for source, target in ((samples, "first.wav"), (None, "second.wav")):
        with audio_writer(tmp_path / target, 16_000) as write:
            write(soundfile.read(tmp_path / "first.wav", dtype="float32")[0] if source is None else source)
    assert (tmp_path / "first.wav").read_bytes() == (tmp_path / "second.wav").read_bytes()
    assert soundfile.info(tmp_path / "first.wav").samplerate == 16_000


def test_files_are_written_without_the_clients_of_triton(tmp_path):
    program = (
        "import sys; sys.modules['tritonclient'] = None\n"
        "from cosyvoice_client import audio_writer\n"
        "with audio_writer(sys.argv[1]): pass"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a.wav"], check=True)
    assert read(tmp_path / "a.wav") == []


def test_standard_output_is_raw(capfdbinary):
    with audio_writer("-") as write:
        write(FIRST)
    assert list(np.frombuffer(capfdbinary.readouterr().out, "<i2")) == BOTH[:3]


def test_target_that_can_not_be_written_is_named(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"a\.txt: expected a name ending in one of \.wav, "):
        check_target(tmp_path / "a.txt")
    with pytest.raises(InvalidArgumentError, match="there is no folder"):
        check_target(tmp_path / "none" / "a.wav")
    (tmp_path / "b.wav").mkdir()
    with pytest.raises(InvalidArgumentError, match=r"b\.wav"), audio_writer(tmp_path / "b.wav"):
        pass


def test_errors_of_the_caller_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), audio_writer(tmp_path / "a.wav"):
        (tmp_path / "none").read_bytes()
