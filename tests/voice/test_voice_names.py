"""Names of voices: which are taken, what they are kept as, and whose they are."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice import VoiceStore
from fake_voices import make_voice, open_store, same_voice


@pytest.mark.parametrize("name", ["../lock", "..", "", "a/b", "/etc/passwd", "x" * 300, "\0", "0" * 64])
def test_what_looks_like_a_path_is_an_unknown_voice(store: VoiceStore, name: str) -> None:
    for operation in (store.get, store.delete):
        with pytest.raises(InvalidInput):
            operation(name)
    assert store.find(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".hidden",
        "-x",
        "..",
        "a/b",
        "a b",
        "a\\b",
        "x" * 65,
        "0" * 64,
        "a\n",
        "é\0",
        "a\u2028",
        "\ud800",
        "👩‍🎤",
    ],
)
def test_bad_name_is_refused(store: VoiceStore, name: str) -> None:
    with pytest.raises(InvalidInput, match="1 to 64 letters") as caught:
        store.register(name, make_voice(1))
    assert caught.value.field == "voice"
    assert store.entries() == []


@pytest.mark.parametrize(
    "name", ["a", "x" * 64, "小明", "Ünï", "नमस्ते", "𠀀" * 64, "Ann.v2_final-3", "cafe\u0301"]
)
def test_good_name_is_accepted(store: VoiceStore, name: str) -> None:
    store.register(name, make_voice(1))
    assert same_voice(store.get(name), make_voice(1))


def test_names_that_differ_in_case_alone_are_two_voices_on_any_file_system(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register("Ann", make_voice(1))
    store.register("ann", make_voice(2))
    assert [entry.names for entry in store.entries()] == [("Ann",), ("ann",)]
    assert len({path.name.lower() for path in (tmp_path / "names").iterdir()}) == 2
    store.delete("ann")
    assert same_voice(store.get("Ann"), make_voice(1))


def test_one_spelling_of_an_accent_is_the_other(store: VoiceStore) -> None:
    store.register("cafe\u0301", make_voice(1))
    assert same_voice(store.get("caf\u00e9"), make_voice(1))
    store.delete("caf\u00e9")
    assert store.entries() == []


@pytest.mark.parametrize("name", ["小明", "Ünï", "𠀀" * 64, "x" * 64])
def test_files_are_called_in_ascii_and_shorter_than_file_systems_ask(tmp_path: Path, name: str) -> None:
    open_store(tmp_path).register(name, make_voice(1))
    [path] = (tmp_path / "names").iterdir()
    assert path.name.isascii()
    assert len(path.name) < 200


@pytest.mark.parametrize("name", ["小明", "Ann"])
def test_name_that_an_earlier_version_has_written_is_known_and_goes(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path)
    store.put(make_voice(1))
    (tmp_path / "names" / f"{name}.json").write_text(json.dumps({"voice": make_voice(1).key}))
    assert same_voice(store.get(name), make_voice(1))
    assert [entry.names for entry in store.entries()] == [(name,)]
    store.register(name, make_voice(2))
    assert [entry.names for entry in store.entries()] == [(name,), ()]
    store.delete(name)
    assert not list((tmp_path / "names").iterdir())


ASCII_PROCESS = """
import sys
from pathlib import Path
from fake_voices import CHECKPOINT, make_voice
from cosyvoice_runtime.voice import VoiceStore
assert sys.getfilesystemencoding() == "ascii", sys.getfilesystemencoding()
store = VoiceStore(Path(sys.argv[1]), CHECKPOINT)
known = [name for entry in store.entries() for name in entry.names]
print(ascii(known), [store.get(name).key == make_voice(1).key for name in known])
"""


def test_names_of_any_script_are_known_to_a_python_whose_paths_are_ascii(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    names = ["Ann", "Ünï", "小明", "老人"]
    for name in names[:3]:
        store.register(name, make_voice(1))
    (tmp_path / "names" / "老人.json").write_text(json.dumps({"voice": make_voice(1).key}))
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    folder = Path(__file__).parents[1] / "fakes"
    answer = subprocess.run(
        [sys.executable, "-c", ASCII_PROCESS, tmp_path],
        env={**os.environ, **environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert answer.stdout == f"{names!a} {[True] * 4}\n", answer.stderr


def test_name_that_this_user_can_not_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Root may read everything, so reading is refused here."""
    store, voice = open_store(tmp_path), make_voice(1)
    for name in ("mine", "roots"):
        store.register(name, voice)
    read_bytes = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.stem == "roots":
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert [entry.names for entry in store.entries()] == [("mine",)]
    assert f"roots.json can't be read by user {os.geteuid()}" in caplog.text


def test_name_moves_to_the_voice_registered_last(store: VoiceStore) -> None:
    store.register("ann", make_voice(1))
    store.register("ann", make_voice(2))
    assert same_voice(store.get("ann"), make_voice(2))
    assert [entry.key for entry in store.entries()] == [make_voice(2).key, make_voice(1).key]


def test_file_in_the_place_of_a_name_is_set_aside(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "names" / "ann.json").write_text("mine")
    store.register("ann", make_voice(1))
    assert same_voice(store.get("ann"), make_voice(1))
    assert (tmp_path / "names" / "ann.json.damaged").read_text() == "mine"


@pytest.mark.parametrize("content", ["", "[]", '{"voice": 3}', json.dumps({"voice": "../x"})])
def test_damaged_name_is_logged_and_its_voice_stays(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    store.register("ann", make_voice(1))
    (tmp_path / "names" / "ann.json").write_text(content)
    with caplog.at_level(logging.ERROR), pytest.raises(InvalidInput):
        store.get("ann")
    assert "ann.json" in caplog.text
    assert [entry.key for entry in store.entries()] == [make_voice(1).key]
