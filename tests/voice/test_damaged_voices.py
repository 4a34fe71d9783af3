"""Files of a store that are damaged, another's or of another version."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.voice import VoiceStore
from cosyvoice_runtime.voice.files import MAX_KEPT
from cosyvoice_runtime.voice.voice import OtherFormatError
from fake_voices import make_voice, open_store, same_voice, voice_path


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_damaged_voice_goes_with_the_one_that_took_its_place(tmp_path: Path) -> None:
    voice, store = make_voice(1), open_store(tmp_path, memory_voices=0)
    store.put(voice)
    damage(voice_path(tmp_path, voice))
    assert store.find(voice.key) is None
    store.register("ann", voice)
    store.delete("ann")
    assert not list((tmp_path / "voices").iterdir())


@pytest.mark.parametrize(
    "ruin",
    [damage, lambda path: path.write_bytes(path.read_bytes()[:-9]), lambda path: path.write_bytes(b"")],
)
def test_damaged_voice_is_named_set_aside_and_logged(
    tmp_path: Path, ruin: object, caplog: pytest.LogCaptureFixture
) -> None:
    voice = make_voice(1)
    open_store(tmp_path).register("ann", voice)
    ruin(voice_path(tmp_path, voice))
    store = open_store(tmp_path)
    with caplog.at_level(logging.ERROR), pytest.raises(CheckpointError, match=voice.key):
        store.get("ann")
    assert "ann" in caplog.text
    assert store.entries() == []
    assert [file.name for file in (tmp_path / "voices").iterdir()] == [f"{voice.key}.safetensors.damaged"]
    store.register("ann", voice)
    assert same_voice(store.get("ann"), voice)


def test_only_some_damaged_voices_are_kept(tmp_path: Path) -> None:
    store, voices = open_store(tmp_path, memory_voices=0), [make_voice(seed) for seed in range(MAX_KEPT + 2)]
    for voice in [*voices, voices[0]]:
        store.put(voice)
        damage(voice_path(tmp_path, voice))
        assert store.find(voice.key) is None
    assert len(list((tmp_path / "voices").iterdir())) == MAX_KEPT


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.*")}


def test_files_that_are_none_of_its_own_are_left_alone(tmp_path: Path) -> None:
    for folder in ("voices", "names"):
        (tmp_path / folder).mkdir()
    save_file({"weight": np.zeros(4, np.float32)}, tmp_path / "voices" / "my-model.safetensors")
    (tmp_path / "voices" / "broken.safetensors").write_bytes(b"")
    (tmp_path / "names" / "people.json").write_text('["Ann", "Bob"]')
    (tmp_path / "names" / "two people.json").write_text('["Ann", "Bob"]')
    before = files_of(tmp_path)
    store = open_store(tmp_path, max_voices=1)
    store.register("ann", make_voice(1))
    store.delete("ann")
    for seed in range(3):  # makes room
        store.put(make_voice(seed))
    with pytest.raises(InvalidInput):
        store.get("people")
    assert [entry.key for entry in store.entries()] == [make_voice(2).key]
    assert before.items() <= files_of(tmp_path).items()


def test_voice_of_another_format_stays_with_its_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    voice = make_voice(1)
    open_store(tmp_path).register("ann", voice)
    save_file({"speech_codes": voice.speech_tokens}, voice_path(tmp_path, voice), {"key": voice.key})
    store, before = open_store(tmp_path), files_of(tmp_path)
    with caplog.at_level(logging.ERROR), pytest.raises(CheckpointError, match="as this version keeps"):
        store.get("ann")
    assert store.find(voice.key) is None
    assert store.entries() == []
    assert files_of(tmp_path) == before
    assert "no checkpoint_id, digest, transcript, prompt_mel, speaker_embedding" in caplog.text


def test_version_without_adapters_by_voice_leaves_a_voice_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the texts that every voice has, and ``digest``, whatever else is there."""
    voice = make_voice(1).with_adapter("warm")
    open_store(tmp_path).register("ann", voice)
    before = files_of(tmp_path)
    with monkeypatch.context() as older:
        older.setattr("cosyvoice_runtime.voice.voice.ADAPTER", "unknown")
        with pytest.raises(OtherFormatError, match="no digest"):
            open_store(tmp_path).get("ann")
    assert files_of(tmp_path) == before
    assert open_store(tmp_path).get("ann").adapter == "warm"


def test_entries_leave_out_what_is_no_voice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path)
    store.put(make_voice(1))
    store.put(make_voice(2))
    voice_path(tmp_path, make_voice(1)).write_bytes(b"no voice")
    with caplog.at_level(logging.ERROR):
        assert [entry.key for entry in store.entries()] == [make_voice(2).key]
    assert make_voice(1).key in caplog.text
    assert voice_path(tmp_path, make_voice(1)).read_bytes() == b"no voice"


def test_voice_under_another_s_key_is_damage(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    left, right = make_voice(1), make_voice(2)
    store.put(left)
    voice_path(tmp_path, left).rename(voice_path(tmp_path, right))
    with pytest.raises(CheckpointError):
        store.get(right.key)


def test_write_that_was_cut_off_leaves_nothing_visible(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "voices" / ".incoming").write_bytes(b"half a voice")
    assert store.entries() == []
    store.put(make_voice(1))
    assert [file.name for file in (tmp_path / "voices").iterdir()] == [f"{make_voice(1).key}.safetensors"]


def test_voice_of_another_checkpoint_is_refused_with_the_reason(tmp_path: Path) -> None:
    other = VoiceStore(tmp_path, "checkpoint-b")
    voice = make_voice(1, checkpoint_id="checkpoint-b")
    other.register("ann", voice)
    store = open_store(tmp_path)
    for refused in (lambda: store.get("ann"), lambda: store.put(voice), lambda: store.register("bob", voice)):
        with pytest.raises(InvalidInput, match=r"'checkpoint-b' made it, .* one are 'checkpoint-a'; make"):
            refused()
    assert store.entries()[0].checkpoint_id == "checkpoint-b"
