"""The command ``cosyvoice book``: a whole book, one that was interrupted, and what can't be read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.book.chapters import Gap, Passage, keys_of
from cosyvoice_runtime.book.reader import Stretch
from cosyvoice_runtime.local.book_sources import LibrarySource
from cosyvoice_runtime.local.cli import main
from full_disk import full_disk

ROOT = Path(__file__).parents[2]
BOOK = "# One\n\nThe <b>sea</b> & the sky.\n\nIt blew.\n\n* * *\n\nIt stopped.\n\n# Two\n\nThe end."
TEXTS = ["One", "The <b>sea</b> & the sky.", "It blew.", "It stopped.", "Two", "The end."]
RATE, WORD_S = 24_000, 0.5


class CodedSpeech:
    """Speaks a text as samples of one value, which its seed gives, half a second for each word."""

    def __init__(self) -> None:
        self.spoken: list[str] = []
        self.stop_at = ""

    def speak(self, source: object, text: str, seed: int) -> Iterator[Stretch]:
        if text == self.stop_at:
            raise KeyboardInterrupt
        self.spoken.append(text)
        words = re.sub("<[^>]*>", " ", text).split()
        for number, word in enumerate(words):
            samples = np.full(round(RATE * WORD_S), (seed % 1000 + 1) / 32768, np.float32)
            yield Stretch(
                samples, RATE, [TimedWord(word, number * WORD_S, (number + 1) * WORD_S)], "attention"
            )


@pytest.fixture
def speech(monkeypatch: pytest.MonkeyPatch) -> CodedSpeech:
    coded = CodedSpeech()
    monkeypatch.setattr(LibrarySource, "speak", lambda *given: coded.speak(*given))
    return coded


Read = Callable[..., int]


@pytest.fixture
def read(tiny_checkpoint: Path, tmp_path: Path) -> Read:
    """``read(*options)`` reads the book into ``book.wav`` and returns the exit status."""
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    (tmp_path / "out").mkdir()

    def read(*options: object, book: str = "book.txt", output: str = "book.wav") -> int:
        given = [tmp_path / book, "--checkpoint", tiny_checkpoint, "-o", tmp_path / "out" / output, *options]
        return main(["book", *map(str, given)])

    return read


def test_book_is_its_passages_with_silences_between(read: Read, speech: CodedSpeech, tmp_path: Path) -> None:
    assert read("--seed", 1, "--paragraph-pause", 0.25, "--chapter-pause", 1) == 0
    assert speech.spoken == TEXTS
    samples = soundfile.read(tmp_path / "out" / "book.wav", dtype="int16")[0]
    edges = np.flatnonzero(np.diff(samples, prepend=samples[0])).tolist()
    runs = np.diff([0, *edges, len(samples)]) / RATE
    assert runs.tolist() == [0.5, 0.25, 2.5, 0.25, 1.0, 1.0, 1.0, 1.0, 0.5, 0.25, 1.0]
    assert len({samples[edge] for edge in [0, *edges]} - {0}) == len(TEXTS)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["book.wav"]


def test_captions_are_where_the_words_are_heard(read: Read, speech: CodedSpeech, tmp_path: Path) -> None:
    srt, vtt = tmp_path / "book.srt", tmp_path / "book.vtt"
    assert read("--srt", srt, "--vtt", vtt, "--paragraph-pause", 0, "--chapter-pause", 2, "--quiet") == 0
    cues = re.findall(r"\d+\n(\S+) --> (\S+)\n(.*)\n", srt.read_text("utf-8"))
    assert cues == [
        ("00:00:00,000", "00:00:00,500", "One"),
        ("00:00:00,500", "00:00:03,000", "The sea & the sky."),
        ("00:00:03,000", "00:00:04,000", "It blew."),
        ("00:00:06,000", "00:00:07,000", "It stopped."),
        ("00:00:09,000", "00:00:09,500", "Two"),
        ("00:00:09,500", "00:00:10,500", "The end."),
    ]
    assert "\n00:00:09.500 --> 00:00:10.500\nThe <00:00:10.000>end.\n" in vtt.read_text("utf-8")


@pytest.mark.parametrize("stop_at", TEXTS)
def test_interrupted_book_goes_on_where_it_stopped(
    read: Read, speech: CodedSpeech, tmp_path: Path, capsys: pytest.CaptureFixture[str], stop_at: str
) -> None:
    output = tmp_path / "out" / "book.wav"
    assert read("--seed", 5, "--quiet") == 0
    whole = output.read_bytes()
    output.unlink()
    speech.spoken, speech.stop_at = [], stop_at
    assert read("--seed", 5) == 130
    assert re.search(r"stopped at \d+ %; the same command goes on", capsys.readouterr().err)
    assert not output.exists()
    speech.stop_at = ""
    assert read("--seed", 5) == 0
    assert speech.spoken == TEXTS
    assert output.read_bytes() == whole


def test_kept_parts_are_not_spoken_again_but_a_damaged_one_is(
    read: Read, speech: CodedSpeech, tmp_path: Path
) -> None:
    output, parts = tmp_path / "out" / "book.wav", tmp_path / "out" / "book.wav.parts"
    assert read("--keep-parts") == 0
    whole = output.read_bytes()
    keys = keys_of([Passage(text, 0, Gap.NONE) for text in TEXTS])
    with open(parts / f"{keys[2]}.flac", "r+b") as file:
        file.seek(60)
        file.write(b"damage")
    (parts / f"{keys[4]}.json").write_text("{")
    speech.spoken = []
    assert read("--keep-parts") == 0
    assert speech.spoken == [TEXTS[2], TEXTS[4]]
    assert output.read_bytes() == whole


CHANGES = [
    (["--speed", "1.5"], "speed: 1.5 is not accepted"),
    (["--seed", "2"], "seed: 2 is not accepted"),
    (["--language", "de"], "language: 'de' is not accepted"),
    (["--lexicon", "words"], "lexicon: "),
    (["--runtime", "onnx"], "runtime: 'onnx' is not accepted"),
]


@pytest.mark.parametrize(("options", "words"), CHANGES)
def test_changed_setting_is_named(
    read: Read, speech: CodedSpeech, tmp_path: Path, monkeypatch, capsys, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words").write_text("sea\tlake\n")
    assert read("--seed", 1, "--keep-parts", "--quiet") == 0
    assert read(*options) == 1
    said = capsys.readouterr().err
    assert words in said
    assert "book.wav.parts was begun with others" in said
    assert read(*options, "--restart") == 0
    assert speech.spoken == TEXTS * 2


def test_changed_text_is_spoken_alone_as_in_one_go(read: Read, speech: CodedSpeech, tmp_path: Path) -> None:
    output = tmp_path / "out" / "book.wav"
    assert read("--seed", 1, "--keep-parts", "--quiet") == 0
    changed = BOOK.replace("It blew.", "It rained.").replace("# Two", "It blew.\n\n# Two")
    (tmp_path / "book.txt").write_text(changed, encoding="utf-8")
    assert read("--seed", 1, "--quiet") == 0
    assert speech.spoken == [*TEXTS, "It rained."]
    gone_on = output.read_bytes()
    assert read("--seed", 1, "--quiet") == 0
    assert output.read_bytes() == gone_on


def test_parts_of_another_book_are_not_lost(read: Read, speech: CodedSpeech, tmp_path: Path, capsys) -> None:
    (tmp_path / "other.txt").write_text("Something else.\n\nAnd more.")
    speech.stop_at = "It stopped."
    assert read() == 130
    kept = sorted((tmp_path / "out" / "book.wav.parts").iterdir())
    assert read(book="other.txt") == 1
    assert "it keeps 3 passages of another book" in capsys.readouterr().err
    assert sorted((tmp_path / "out" / "book.wav.parts").iterdir()) == kept
    assert read("--restart", book="other.txt") == 0


def test_changed_voice_is_named_and_a_pause_or_a_title_is_none(
    read: Read, speech: CodedSpeech, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = tmp_path / "me.wav"
    soundfile.write(reference, 0.1 * np.random.default_rng(0).standard_normal(32_000), 16_000)
    assert read("--keep-parts", "--quiet") == 0
    assert read("--keep-parts", "--quiet", "--paragraph-pause", 2, "--title", "Sea") == 0
    assert speech.spoken == TEXTS
    assert read("--reference", reference, "--quiet") == 1
    assert "voice: " in capsys.readouterr().err
    assert speech.spoken == TEXTS


def test_paragraph_of_marks_alone_is_left_out_and_told(
    read: Read, speech: CodedSpeech, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book.txt").write_text("# One\n\n<br class='wide'/>\n\n***\n\nWords.", encoding="utf-8")
    assert read("--keep-parts") == 0
    assert speech.spoken == ["One", "Words."]
    assert "left out: target_text: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--paragraph-pause", "-1"], "paragraph_pause: -1.0 is not accepted; 0 to 10 seconds"),
        (["--chapter-pause", "nan"], "chapter_pause: nan is not accepted; 0 to 10 seconds"),
        (["--srt", "none/a.srt"], "none/a.srt: expected a file in a folder that exists"),
        (["--speed", "9"], "speed: 9.0 is not accepted"),
        (["--language", "klingon!"], "language: 'klingon!' is not accepted"),
        (["--voice", "nobody"], "voice: 'nobody' is not accepted"),
        (["-o", "book.mp3"], "output: 'book.mp3' is not accepted; expected a name ending in one of .m4b"),
    ],
)
def test_option_that_can_not_be_used_is_refused_before_anything_is_written(
    read: Read, tmp_path: Path, monkeypatch, capsys, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(*options) == 1
    assert words in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_book_of_ornaments_is_refused(read: Read, tmp_path: Path, capsys) -> None:
    (tmp_path / "book.txt").write_text("***\n\n---")
    assert read() == 1
    assert "nothing of it can be spoken" in capsys.readouterr().err


def test_full_disk_is_named_and_what_is_spoken_is_kept(
    read: Read, speech: CodedSpeech, tmp_path, capsys
) -> None:
    with full_disk(400):
        assert read("--seed", 1, "--quiet") == 1
    assert "book.json: File too large; what is spoken by now is kept" in capsys.readouterr().err
    with full_disk(20_000):
        assert read("--seed", 1, "--quiet") == 1
    assert "out/book.wav: File too large; what is spoken by now is kept" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("*.wav"))
    assert read("--seed", 1, "--quiet") == 0
    assert set(speech.spoken) == set(TEXTS)


PROGRAM = """
import os, signal, sys
from cosyvoice_runtime.local.book_sources import LibrarySource
from cosyvoice_runtime.local.cli import main

speak, begun, stop = LibrarySource.speak, [], getattr(signal, sys.argv.pop(1), 0)

def counted(source, text, seed):
    begun.append(text)
    if stop and len(begun) == 3:
        os.kill(os.getpid(), stop)
    return speak(source, text, seed)

LibrarySource.speak = counted
sys.exit(main())
"""


def test_process_that_is_stopped_while_it_speaks_makes_the_same_file(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}

    def run(stop: str, output: str) -> int:
        command = [sys.executable, "-c", PROGRAM, stop, "book", "book.txt", "-o", output]
        command += ["--checkpoint", str(tiny_checkpoint), "--seed", "3", "--srt", f"{output}.srt"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode

    assert run("none", "whole.m4b") == 0
    for stop, status, kept in (("SIGINT", 130, 2), ("SIGKILL", -signal.SIGKILL, 4)):
        assert run(stop, "stopped.m4b") == status
        names = {path.stem for path in (tmp_path / "stopped.m4b.parts").glob("*.flac")}
        assert names == set(keys_of([Passage(text, 0, Gap.NONE) for text in TEXTS[:kept]]))
    assert run("none", "stopped.m4b") == 0
    for suffix in ("", ".srt"):
        stopped, whole = ((tmp_path / f"{name}.m4b{suffix}").read_bytes() for name in ("stopped", "whole"))
        assert stopped == whole
