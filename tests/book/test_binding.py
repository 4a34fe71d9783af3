"""Where a book's passages are heard, and the file of the whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_runtime.book import binding
from cosyvoice_runtime.book.binding import MOST_TITLE_BYTES, Imprint, bind, check_output
from cosyvoice_runtime.book.chapters import Gap, Passage
from cosyvoice_runtime.book.timeline import BookTimeline, ChapterMark, Pauses, timeline_of
from cosyvoice_runtime.errors import InvalidInput
from full_disk import full_disk

RATE = 24_000
PASSAGES = [
    Passage("One", 0, Gap.CHAPTER),
    Passage("a", 0, Gap.PARAGRAPH),
    Passage("b", 0, Gap.NONE),
    Passage("Three", 2, Gap.CHAPTER),
]


def tone(samples: int, pitch: float = 0.05):
    return (9000 * np.sin(np.arange(samples) * pitch)).astype(np.int16)


def test_silences_stand_between_paragraphs_and_before_chapters() -> None:
    lengths = [100, 200, 300, 400]
    titles = ["One", "Two, of which nothing is spoken", "Three"]
    assert timeline_of(PASSAGES, lengths, titles, 1000, Pauses(0.05, 1.0)) == BookTimeline(
        [0, 50, 0, 1000], [0, 150, 350, 1650], [ChapterMark("One", 0, 1650), ChapterMark("Three", 1650, 2050)]
    )


MARKS = [ChapterMark("Über & die See", 0, 2 * RATE), ChapterMark("第二章", 2 * RATE, 3 * RATE)]
IMPRINT = Imprint("Sea", "", MARKS, RATE)


@pytest.mark.parametrize("suffix", ["m4b", "opus"])
def test_chapters_begin_where_they_do_whatever_their_milliseconds(tmp_path: Path, suffix: str) -> None:
    av = pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    begins = [0, RATE // 2, 7 * RATE // 10, RATE, 15 * RATE // 10, 61 * RATE + RATE * 999 // 1000]
    marks = [ChapterMark("A", *each) for each in pairwise([*begins, 62 * RATE])]
    path = tmp_path / f"book.{suffix}"
    bind(path, [np.zeros(62 * RATE, np.int16)], Imprint("Sea", "", marks, RATE))
    with av.open(str(path)) as file:
        told = [float(each["start"] * each["time_base"]) for each in file.chapters()]
    assert told == [0.0, 0.5, 0.7, 1.0, 1.5, 61.999]


@pytest.mark.parametrize("suffix", ["m4b", "opus"])
@pytest.mark.parametrize("rate", [RATE, 22_050])
def test_chapters_titles_and_sound_are_read_back(tmp_path: Path, suffix: str, rate: int) -> None:
    av = pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    path = tmp_path / f"book.{suffix}"
    marks = [ChapterMark(mark.title, mark.start * rate // RATE, mark.end * rate // RATE) for mark in MARKS]
    silence = np.zeros(rate, np.int16)
    bind(path, [tone(rate), silence, tone(rate)], Imprint("Die See", "Jö", marks, rate))
    with av.open(str(path)) as file:
        told = {**file.metadata, **file.streams.audio[0].metadata}
        chapters = [
            (each["metadata"]["title"], float(each["start"] * each["time_base"])) for each in file.chapters()
        ]
        frames = [frame.to_ndarray().reshape(-1) for frame in file.decode(audio=0)]
        file_rate = file.streams.audio[0].rate
    assert chapters == [("Über & die See", 0.0), ("第二章", 2.0)]
    names = ("title", "artist", "album", "genre", "comment")
    assert [told[name] for name in names] == ["Die See", "Jö", "Die See", "Audiobook", "AI-generated"]
    heard = np.concatenate(frames)
    assert len(heard) / file_rate == pytest.approx(3.0, abs=0.1)
    loud = [np.abs(part[file_rate // 4 : -file_rate // 4]).max() for part in np.array_split(heard, 3)]
    assert loud[1] < 0.05 * min(loud[0], loud[2])


@pytest.mark.parametrize("suffix", ["m4b", "opus", "wav"])
def test_same_book_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    whole = tone(3 * RATE)
    for path, stretches in zip(paths, ([whole], np.array_split(whole, 7)), strict=True):
        bind(path, stretches, IMPRINT)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_wav_holds_all_samples(tmp_path: Path) -> None:
    bind(tmp_path / "a.wav", [tone(RATE), tone(5, 1.0)], IMPRINT)
    samples, rate = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert rate == RATE
    assert np.array_equal(samples, np.concatenate([tone(RATE), tone(5, 1.0)]))


def test_wav_that_would_be_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"30 hours don't fit into a wav file; use \.m4b, and rename"):
        bind(tmp_path / "a.wav", [], Imprint("Sea", "", [ChapterMark("One", 0, 30 * 3600 * RATE)], RATE))


def test_long_title_is_cut_between_characters(tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    path = tmp_path / "a.m4b"
    bind(path, [tone(RATE)], Imprint("Sea", "", [ChapterMark("a" + "章" * 200, 0, RATE)], RATE))
    with av.open(str(path)) as file:
        [chapter] = file.chapters()
    assert chapter["metadata"]["title"] == "a" + "章" * ((MOST_TITLE_BYTES - 1) // 3)


@pytest.mark.parametrize("suffix", ["m4b", "opus", "wav"])
def test_file_for_which_there_is_no_room_is_an_error(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    noise = np.random.default_rng(0).integers(-9000, 9000, 20 * RATE).astype(np.int16)
    with full_disk(1000), pytest.raises((OSError, InvalidArgumentError), match="File too large"):
        bind(tmp_path / f"a.{suffix}", [noise], IMPRINT)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("book.mp3", "expected a name ending in one of .m4b, .opus, .wav"),
        ("none/book.m4b", "there is no folder"),
        ("folder.wav", "it is a folder"),
    ],
)
def test_output_that_can_not_be_written_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(InvalidInput, match="output: ") as refused:
        check_output(tmp_path / name)
    assert words in str(refused.value)


def test_missing_pyav_is_named_for_the_formats_that_need_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(binding, "find_spec", lambda name: None)
    check_output(tmp_path / "a.wav")
    with pytest.raises(InvalidInput, match=r"\.opus needs PyAV: pip install av=="):
        check_output(tmp_path / "a.opus")
