"""A book that a server speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_client import AudioChunk, SpeechClient, SpeechRequest, UnavailableError
from cosyvoice_client.errors import LostError
from cosyvoice_runtime.book.reader import Stretch
from cosyvoice_runtime.local import book_sources
from cosyvoice_runtime.local.cli import main
from fake_server import coded

TEXTS = ["id=3 chunks=2", "id=4 chunks=3", "id=5 chunks=1"]


@pytest.fixture
def read(server, tmp_path: Path):
    """``read(texts, *options)`` reads paragraphs into ``book.wav`` and returns the exit status."""

    def read(texts: list[str], *options: object) -> int:
        (tmp_path / "book.txt").write_text("\n\n".join(texts), encoding="utf-8")
        given = [tmp_path / "book.txt", "--server", server.grpc_url, "-o", tmp_path / "book.wav", *options]
        return main(["book", *map(str, given)])

    return read


def test_server_speaks_each_paragraph_with_a_seed_of_its_own(server, read, tmp_path: Path) -> None:
    reference = tmp_path / "me.wav"
    soundfile.write(reference, 0.1 * np.random.default_rng(0).standard_normal(32_000), 16_000)
    seeds = []
    for number in range(3):
        spoken_like = ["--reference", reference, "--reference-text", "Words.", "--speed", 1.5]
        assert read(TEXTS[: number + 1], "--seed", 7, "--restart", "--quiet", *spoken_like) == 0
        inputs = {name: given["first"] for name, given in server.report()["inputs"].items()}
        seeds.append(inputs["seed"])
        assert (inputs["reference_text"], inputs["speed"]) == ("Words.", 1.5)
        assert "cross_lingual" not in inputs
    assert len(set(seeds)) == 3
    samples, rate = soundfile.read(tmp_path / "book.wav", dtype="int16")
    silence = np.zeros(round(0.7 * rate), np.int16)
    heard = [coded(3, 2), silence, coded(4, 3), silence, coded(5, 1)]
    assert np.array_equal(samples, np.concatenate(heard))


def test_captions_have_the_words_of_the_server(read, tmp_path: Path) -> None:
    texts = ["by=attention chunks=2 id=99"]
    assert read(texts, "--vtt", tmp_path / "a.vtt", "--keep-parts") == 0
    told = (tmp_path / "a.vtt").read_text("utf-8")
    assert "Word times by attention." in told
    assert "0 <" in told  # The fake names words by the numbers of their chunks.
    (tmp_path / "book.wav").unlink()
    assert read(texts, "--words", tmp_path / "a.json") == 0  # The parts know how they were timed.
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["method"] == "attention"


def test_server_that_tells_no_words_costs_no_book(read, tmp_path: Path, capsys) -> None:
    assert read(TEXTS, "--srt", tmp_path / "a.srt") == 1
    assert "the server told none" in capsys.readouterr().err


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    """The seconds for which the command has waited, which pass at once."""
    seconds = list[float]()
    monkeypatch.setattr(book_sources.time, "sleep", seconds.append)
    monkeypatch.setattr(book_sources, "MOST_REFUSALS", 3)
    monkeypatch.setattr(book_sources, "MOST_LOSSES", 2)
    return seconds


def test_book_goes_on_after_a_server_has_failed(server, read, waited, tmp_path: Path, capsys) -> None:
    failing = "id=1 chunks=2 fail=UNAVAILABLE fail_after=1"
    texts = [*TEXTS[:2], failing]
    assert read(texts, "--seed", 1) == 1
    assert waited == [book_sources.AWAY_S]
    assert "speech: told to fail; waiting" in capsys.readouterr().err
    before = server.report()["finished"]
    assert read(texts) == 1
    assert len(waited) == 1  # Where nothing was spoken, the address may be wrong.
    assert server.report()["finished"] == before
    assert len(list((tmp_path / "book.wav.parts").glob("*.flac"))) == 2


class Troubled:
    """A client of a server that tells these errors first, each behind a chunk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: list[UnavailableError]) -> None:
        self._speak, self._errors = SpeechClient.speak, errors
        monkeypatch.setattr(SpeechClient, "speak", lambda *given: self.speak(*given))

    def speak(self, client: SpeechClient, request: SpeechRequest) -> Iterator[AudioChunk]:
        for chunk in self._speak(client, request):
            yield chunk
            if self._errors:
                raise self._errors.pop(0)


@pytest.mark.parametrize(("refusals", "status"), [(2, 0), (3, 1)])
def test_full_server_is_asked_again_when_it_says(
    read, waited, tmp_path: Path, monkeypatch, capsys, refusals: int, status: int
) -> None:
    Troubled(monkeypatch, [UnavailableError("full; try again in 1.5 s")] * refusals)
    assert read(TEXTS[:1]) == status
    assert waited == [1.5, 1.5]
    said = capsys.readouterr().err
    assert said.count("full; try again in 1.5 s; waiting") == 1
    if status:
        assert "cosyvoice: full; try again in 1.5 s" in said
    else:
        assert np.array_equal(soundfile.read(tmp_path / "book.wav", dtype="int16")[0], coded(3, 2))


def test_passage_amid_which_its_server_is_lost_is_heard_once(
    read, waited, tmp_path: Path, monkeypatch
) -> None:
    assert read(TEXTS[:2], "--keep-parts") == 0
    whole = (tmp_path / "book.wav").read_bytes()
    assert read(TEXTS[:1], "--restart", "--keep-parts") == 0
    speak = book_sources.ServerSource.speak

    def has_spoken(source: book_sources.ServerSource, text: str, seed: int) -> Iterator[Stretch]:
        source._has_spoken = True
        return speak(source, text, seed)

    monkeypatch.setattr(book_sources.ServerSource, "speak", has_spoken)
    Troubled(monkeypatch, [LostError("gone")])
    assert read(TEXTS[:2]) == 0
    assert waited == [book_sources.AWAY_S]
    assert (tmp_path / "book.wav").read_bytes() == whole


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runtime", "onnx"], "runtime: 'onnx' is not accepted; none beside --server, which has its own"),
        (["--threads", 2], "threads: 2 is not accepted; none beside --server"),
        (["--emoji", "named"], "emoji: 'named' is not accepted; none beside --server"),
        (["--reference", "none.wav"], "none.wav"),
        (["--lexicon", "none.txt"], "none.txt"),
    ],
)
def test_option_that_is_none_of_a_server_is_refused(read, tmp_path, capsys, options, words) -> None:
    assert read(TEXTS, *options) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "book.wav.parts").exists()


def test_missing_grpc_is_named(read, monkeypatch, capsys) -> None:
    monkeypatch.setattr(book_sources, "find_spec", lambda name: None)
    assert read(TEXTS) == 1
    assert "it needs gRPC: pip install -r requirements/client.txt" in capsys.readouterr().err


def test_server_that_is_not_there_is_named(tmp_path: Path, capsys) -> None:
    (tmp_path / "book.txt").write_text("Words.")
    given = [tmp_path / "book.txt", "--server", "127.0.0.1:1", "-o", tmp_path / "book.wav", "--quiet"]
    assert main(["book", *map(str, given)]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
