"""Spoken passages of a book on the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.book.parts import BookParts, Part, open_parts
from cosyvoice_runtime.errors import InvalidInput, StorageError
from full_disk import full_disk

KEY, OTHER = f"{'0a' * 16}-0", f"{'0a' * 16}-12"
SETTINGS = {"voice": "a" * 64, "speed": 1.0, "lexicon": None}
NOISE = np.random.default_rng(0).integers(-9000, 9000, 5000).astype(np.int16)
WORDS = [TimedWord("“Hé", 0.1, 0.25), TimedWord("走", 0.25, 0.5)]

FUTURE = b'{"format": 2, "seed": 1, "settings": {}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "book.m4b.parts"


@pytest.fixture
def parts(folder: Path) -> Iterator[BookParts]:
    with open_parts(folder, SETTINGS, 7, restart=False) as parts:
        yield parts


def test_passage_is_kept_as_it_was(parts: BookParts) -> None:
    assert parts.read(KEY) is None
    assert parts.write(KEY, NOISE, 24_000, WORDS, "attention") == Part(5000, 24_000, "attention")
    assert parts.read(KEY) == Part(5000, 24_000, "attention")
    assert np.array_equal(parts.sound(KEY), NOISE)
    assert parts.words(KEY) == WORDS


@pytest.mark.parametrize("name", [f"{KEY}.flac", f"{KEY}.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "missing"])
def test_damaged_passage_is_none(parts: BookParts, name: str, damage: str) -> None:
    parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    path = parts.directory / name
    content = path.read_bytes()
    damaged = {"cut": content[:-5], "changed": content.replace(content[40:44], b"\0\1\2\3"), "emptied": b""}
    path.unlink()
    if damage in damaged:
        path.write_bytes(damaged[damage])
    assert parts.read(KEY) is None


@pytest.mark.parametrize("content", ["[]", "{}", '{"words": [["a"]]}'])
def test_passage_about_which_something_else_is_told_is_none(parts: BookParts, content: str) -> None:
    parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    about = parts.directory / f"{KEY}.json"
    known = json.loads(about.read_text("utf-8"))
    about.write_text(json.dumps(known | json.loads(content)) if content.startswith('{"') else content)
    assert parts.read(KEY) is None


def test_book_goes_on_with_its_seed(folder: Path) -> None:
    with open_parts(folder, SETTINGS, None, restart=False) as parts:
        seed = parts.seed
        parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    for asked in (None, seed):
        with open_parts(folder, SETTINGS, asked, restart=False) as parts:
            assert parts.seed == seed
            assert parts.read(KEY) is not None


@pytest.mark.parametrize(
    ("settings", "seed", "words"),
    [
        (SETTINGS | {"speed": 1.5}, None, ["speed: 1.5 is not accepted", "(speed: 1.0 there)", "--restart"]),
        (
            SETTINGS | {"voice": "b" * 64},
            7,
            ["voice: 'bbbbbbbbbbbb...' is", "(voice: aaaaaaaaaaaa... there)"],
        ),
        (SETTINGS | {"speed": 2.0, "lexicon": "x"}, 7, ["(lexicon: None there; speed: 1.0 there)"]),
        (SETTINGS, 8, ["seed: 8 is not accepted", "(seed: 7 there)"]),
    ],
)
def test_settings_that_differ_are_named_until_a_restart(
    folder: Path, settings: dict[str, object], seed: int | None, words: list[str]
) -> None:
    with open_parts(folder, SETTINGS, 7, restart=False) as parts:
        parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    with pytest.raises(InvalidInput) as refused:
        open_parts(folder, settings, seed, restart=False).__enter__()
    assert [part for part in words if part not in str(refused.value)] == []
    with open_parts(folder, settings, seed, restart=True) as parts:
        assert parts.read(KEY) is None


def test_settings_of_a_book_of_which_nothing_is_kept_count_no_more(folder: Path) -> None:
    with open_parts(folder, SETTINGS | {"voice": "mistyped"}, 7, restart=False) as parts:
        (folder / f"{KEY}.flac").write_bytes(b"half of it")
    with open_parts(folder, SETTINGS, 8, restart=False) as parts:
        assert parts.seed == 8
        parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    with open_parts(folder, SETTINGS, None, restart=False) as parts:
        assert parts.seed == 8


def test_folder_is_one_process_s_alone(folder: Path, parts: BookParts) -> None:
    with pytest.raises(StorageError, match="another process is writing this book"):
        open_parts(folder, SETTINGS, 7, restart=True).__enter__()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1, "seed": 1}', FUTURE])
def test_damaged_list_is_named(folder: Path, content: bytes) -> None:
    with open_parts(folder, SETTINGS, 7, restart=False) as parts:
        parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    (folder / "book.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"book\.json: it is damaged, or of another version; --restart"):
        open_parts(folder, SETTINGS, 7, restart=False).__enter__()


@pytest.mark.parametrize("restart", [False, True])
def test_files_of_others_stay(folder: Path, restart: bool) -> None:
    folder.mkdir()
    (folder / "photo.jpg").touch()
    with pytest.raises(StorageError, match=r"it is no folder of a book, and holds photo\.jpg"):
        open_parts(folder, SETTINGS, 7, restart=restart).__enter__()
    assert [path.name for path in folder.iterdir()] == ["photo.jpg"]


def test_removed_folder_leaves_nothing_but_files_of_others(folder: Path, parts: BookParts) -> None:
    parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    (folder / "photo.jpg").touch()
    parts.remove()
    assert [path.name for path in folder.iterdir()] == ["photo.jpg"]
    (folder / "photo.jpg").unlink()
    parts.remove()
    assert not folder.exists()


def test_output_takes_its_place_when_it_is_whole(parts: BookParts, tmp_path: Path) -> None:
    output = tmp_path / "book.wav"
    output.write_text("older")
    with pytest.raises(UnicodeEncodeError), parts.output(output) as whole:
        whole.write_text("half of it \udcff", encoding="utf-8")
    assert output.read_text() == "older"
    assert not whole.exists()
    with parts.output(output) as whole:
        whole.write_text("new")
    assert output.read_text() == "new"
    assert not whole.exists()


def test_passage_for_which_there_is_no_room_is_an_error_and_the_others_stay(parts: BookParts) -> None:
    parts.write(KEY, NOISE, 24_000, WORDS, "attention")
    told = f"{OTHER}.flac: File too large; what is spoken by now is kept"
    with full_disk(1000), pytest.raises(StorageError, match=told):
        parts.write(OTHER, NOISE, 24_000, WORDS, "attention")
    assert parts.read(KEY) is not None
    assert parts.read(OTHER) is None
    assert sorted(path.name for path in parts.directory.iterdir()) == [
        f"{KEY}.flac",
        f"{KEY}.json",
        "book.json",
    ]
