"""Whatever holds a voice is read, within bounds that no header sets."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
import soundfile

pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")

from cosyvoice_client import InvalidArgumentError, read_reference
from sound_files import BY_LIBSNDFILE, RECORDERS, encoded, wav, with_number


def tone(seconds: float, rate: int, hertz: float = 300.0):
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def refusal(source, **options) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read_reference(source, name="mine", **options)
    return str(caught.value)


def hertz(reference) -> float:
    """The loudest frequency."""
    spectrum = np.abs(np.fft.rfft(reference.samples * np.hanning(len(reference.samples))))
    return float(spectrum.argmax() * reference.rate / len(reference.samples))


@pytest.mark.parametrize("layout", ["mono", "stereo"])
@pytest.mark.parametrize("suffix", RECORDERS)
def test_what_people_record_with_is_read(suffix, layout, tmp_path):
    rate = RECORDERS[suffix][2]
    if "amr" in RECORDERS[suffix][1] and layout == "stereo":
        pytest.skip("the codec of telephones is mono")
    path = tmp_path / f"me.{suffix}"
    path.write_bytes(encoded(tone(1.5, rate), suffix, layout))
    own, sent = read_reference(path, rate=None), read_reference(path)
    assert (own.rate, sent.rate) == (48_000 if "opus" in RECORDERS[suffix][1] else rate, 16_000)
    for reference in (own, sent, read_reference(path.read_bytes())):
        assert reference.samples.dtype == np.float32
        assert len(reference.samples) / reference.rate == pytest.approx(1.5, abs=0.1)
        assert hertz(reference) == pytest.approx(300, abs=2)
        middle = reference.samples[len(reference.samples) // 4 : -len(reference.samples) // 4]
        assert np.abs(middle).max() == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("picture", ["mpeg4", "mjpeg", "libx264"])
def test_of_a_video_the_sound_is_read(picture):
    reference = read_reference(encoded(tone(1, 48_000), "mp4", "stereo", picture))
    assert hertz(reference) == pytest.approx(300, abs=2)


def test_sound_of_a_film_is_mixed():
    assert hertz(read_reference(encoded(tone(1, 48_000), "mp4", "5.1"))) == pytest.approx(300, abs=2)


def test_video_without_sound_says_so():
    import av

    file = BytesIO()
    with av.open(file, "w", format="mp4") as output:
        video = output.add_stream("mpeg4", rate=10)
        video.width = video.height = 64
        output.mux(video.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))))
        output.mux(video.encode(None))
    assert refusal(file.getvalue()) == "mine: it holds no sound track"


def test_tag_in_another_encoding_is_no_obstacle():
    data = encoded(tone(1, 44_100), "m4a").replace(b"SoundHandler", b"S\xf6undHandler")
    assert hertz(read_reference(data)) == pytest.approx(300, abs=2)


@pytest.mark.parametrize("suffix", [suffix for suffix in RECORDERS if suffix not in BY_LIBSNDFILE])
def test_what_needs_pyav_says_so_where_it_is_missing(suffix, monkeypatch):
    data = encoded(tone(1, RECORDERS[suffix][2]), suffix)
    monkeypatch.setitem(sys.modules, "av", None)
    assert "expected a wav, flac, ogg, mp3 or aiff file; m4a, mp4" in refusal(data)
    assert "needs PyAV: pip install av==" in refusal(data)


@pytest.mark.parametrize("suffix", BY_LIBSNDFILE)
def test_what_needs_no_pyav_is_read_without_it(suffix, monkeypatch):
    data = encoded(tone(1, RECORDERS[suffix][2]), suffix)
    monkeypatch.setitem(sys.modules, "av", None)
    assert hertz(read_reference(data)) == pytest.approx(300, abs=2)


@pytest.mark.parametrize("size", [0, 1, 0x7FFFFFFF, 0xFFFFFFFF], ids=hex)
def test_wav_is_read_to_its_end_whatever_its_header_says(size, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    samples, path = tone(2, 24_000), tmp_path / "piped.wav"
    path.write_bytes(wav(samples, 24_000, size))
    if size == 1:
        assert "it holds no sound" in refusal(path)
        return
    expected = read_reference(wav(samples, 24_000), rate=None).samples
    for source in (path, path.read_bytes()):
        assert np.array_equal(read_reference(source, rate=None).samples, expected)


EXPECTED = ("mine: it is damaged", "mine: it holds no sound", "mine: it lasts 0.")


@pytest.mark.parametrize("suffix", RECORDERS)
def test_file_that_is_cut_off_is_read_so_far_or_refused(suffix):
    data = encoded(tone(2, RECORDERS[suffix][2]), suffix)
    for share in (0.02, 0.5, 0.97):
        problem = ""
        try:
            reference = read_reference(data[: round(share * len(data))], name="mine")
        except InvalidArgumentError as error:
            problem = str(error)
        else:
            assert 0.4 * share < len(reference.samples) / 32_000 < share + 0.05
        assert not problem or problem.startswith(EXPECTED)


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://%b\n#EXT-X-ENDLIST\n"


def test_list_of_files_opens_none(tmp_path):
    secret = tmp_path / "secret.wav"
    secret.write_bytes(wav(tone(1, 16_000), 16_000))
    name = str(secret).encode()
    for listed in (PLAYLIST % name, b"ffconcat version 1.0\nfile %b\n" % name, b"v=0\nm=audio 9 RTP/AVP 0\n"):
        assert "it is damaged, or no sound file: expected a wav" in refusal(listed)


@pytest.mark.parametrize(
    "content", [b"RIFF", b"This is a text.\n" * 99, bytes(9999), b"\x89PNG\r\n\x1a\n" * 9]
)
def test_what_is_no_sound_says_what_is(content, tmp_path):
    path = tmp_path / "voice.m4a"
    path.write_bytes(content)
    with pytest.raises(
        InvalidArgumentError, match=r"voice\.m4a: it is damaged, or no sound file: expected a wav"
    ):
        read_reference(path)


def test_empty_file_says_so():
    assert refusal(b"") == "mine: the file is empty"


@pytest.mark.parametrize(
    ("mux", "mark", "offset"),
    [({}, b"stsz", 12), ({}, b"stts", 12), ({"movflags": "frag_keyframe+empty_moov"}, b"trun", 8)],
)
def test_tables_that_claim_gigabytes_take_none(mux, mark, offset):
    """Of the samples' sizes, of their times, and of a fragment."""
    data = encoded(tone(1, 8_000), "3gp") if not mux else encoded(tone(1, 48_000), "mp4", **mux)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    for number in (1 << 22, 1 << 26, (1 << 31) - 1):
        damaged = with_number(data, mark, offset, number)
        if mux:
            damaged = with_number(damaged, mark, 4, 0)  # the entries hold nothing, so none need be there
        with suppress(InvalidArgumentError):
            read_reference(damaged)
    assert time.monotonic() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_hours_are_decoded_for_a_minute():
    file = BytesIO()
    soundfile.write(file, np.tile(tone(1, 8_000), 3600), 8_000, format="FLAC")
    start = time.monotonic()
    assert "it lasts more than 60 s, and at most 30 s" in refusal(file.getvalue(), text="Words.")
    assert len(read_reference(file.getvalue(), rate=None).samples) == 30 * 8_000
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(("rate", "channels"), [(4_000, 1), (655_350, 1), (48_000, 8)])
def test_form_that_no_recorder_has_is_refused(rate, channels):
    file = BytesIO()
    soundfile.write(file, np.zeros((rate, channels), np.int16), rate, format="FLAC")
    said = refusal(file.getvalue())
    assert said in (f"mine: it has {rate} samples per second, expected 8000 to 192000",
                    f"mine: it has {channels} channels, at most 6 are expected")  # fmt: skip


def test_damage_in_the_middle_says_where():
    data = bytearray(encoded(tone(4, 32_000), "flac"))
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    assert "mine: it is damaged or cut off after " in refusal(bytes(data))
