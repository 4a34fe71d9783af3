from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from cosyvoice_runtime.errors import CheckpointError, InvalidInput, StorageError
from cosyvoice_runtime.process.exclusive_lock import exclusive_lock
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice import store as voice_store
from cosyvoice_runtime.voice.files import MAX_KEPT
from cosyvoice_runtime.voice.store import StoreFullError
from cosyvoice_runtime.voice.voice import encode_voice
from fake_voices import CHECKPOINT, make_voice, same_voice


def open_store(directory: Path, **limits: int) -> VoiceStore:
    return VoiceStore(directory, CHECKPOINT, **limits)


def voice_path(directory: Path, voice: Voice) -> Path:
    return directory / "voices" / f"{voice.key}.safetensors"


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.fixture(params=[0, 8], ids=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> VoiceStore:
    return open_store(tmp_path, memory_voices=request.param)


@pytest.mark.parametrize("tokens", [0, 1, 30])
def test_voice_comes_back_by_name_and_by_key(store: VoiceStore, tokens: int) -> None:
    voice = make_voice(1, tokens=tokens, transcript='你好, "hello"\n')
    store.register("ann", voice)
    assert same_voice(store.get("ann"), voice)
    assert same_voice(store.get(voice.key), voice)
    found = store.find(voice.key)
    assert found is not None
    assert same_voice(found, voice)


def test_voices_and_names_survive_a_restart(tmp_path: Path) -> None:
    named, unnamed = make_voice(1), make_voice(2)
    store = open_store(tmp_path)
    store.register("ann", named)
    store.put(unnamed)
    reopened = open_store(tmp_path)
    assert same_voice(reopened.get("ann"), named)
    assert same_voice(reopened.get(unnamed.key), unnamed)


def test_two_stores_on_one_directory_see_each_other(tmp_path: Path) -> None:
    left, right = open_store(tmp_path), open_store(tmp_path)
    voice = make_voice(1)
    left.register("ann", voice)
    assert same_voice(right.get("ann"), voice)
    left.delete("ann")
    with pytest.raises(InvalidInput):
        right.get("ann")
    assert right.find(voice.key) is None


def test_unknown_voice_is_refused_with_speakers_and_no_name_of_the_store(store: VoiceStore) -> None:
    store.register("hers", make_voice(1))
    for others, known in (
        ([], "here"),
        (["slt"], "here, or a speaker: slt"),
        ([f"s{number}" for number in range(7)], "here, or a speaker: s0, s1, s2, s3, s4, ..."),
    ):
        with pytest.raises(InvalidInput) as caught:
            store.get("bob", others)
        assert (caught.value.field, caught.value.value) == ("voice", "'bob'")
        assert caught.value.limit == f"expected the name or key of a voice that is kept {known}"


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


def test_entries_tell_names_transcript_and_size(store: VoiceStore, tmp_path: Path) -> None:
    voice = make_voice(1, transcript="good morning")
    store.register("ann", voice)
    store.register("bob", voice)
    store.put(make_voice(2))
    first, second = store.entries()
    assert (first.key, first.names, first.transcript) == (voice.key, ("ann", "bob"), "good morning")
    assert first.checkpoint_id == CHECKPOINT
    assert first.size_bytes == voice_path(tmp_path, voice).stat().st_size
    assert second.names == ()


def test_voice_goes_with_its_last_name(store: VoiceStore) -> None:
    voice = make_voice(1)
    store.register("ann", voice)
    store.register("bob", voice)
    store.delete("ann")
    assert same_voice(store.get("bob"), voice)
    store.delete("bob")
    assert store.entries() == []


def test_delete_by_key_forgets_every_name(store: VoiceStore) -> None:
    voice = make_voice(1)
    store.register("ann", voice)
    store.delete(voice.key)
    assert store.entries() == []
    with pytest.raises(InvalidInput):
        store.get("ann")


def test_least_recently_used_voice_makes_room(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_voices=3)
    voices = [make_voice(seed) for seed in range(4)]
    for second, voice in enumerate(voices[:3]):
        store.put(voice)
        os.utime(voice_path(tmp_path, voice), (second, second))
    store.get(voices[0].key)
    store.put(voices[3])
    assert [store.find(voice.key) is not None for voice in voices] == [True, False, True, True]


def test_named_voice_never_makes_room(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_voices=2)
    store.register("ann", make_voice(0))
    for seed in range(1, 6):
        store.put(make_voice(seed))
    assert same_voice(store.get("ann"), make_voice(0))
    assert same_voice(store.get(make_voice(5).key), make_voice(5))
    assert len(store.entries()) == 2


def test_store_full_of_named_voices_takes_no_other_name_and_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_voices=2)
    store.register("ann", make_voice(0))
    store.register("bob", make_voice(1))
    with pytest.raises(StoreFullError, match="delete") as caught:
        store.register("cid", make_voice(2))
    assert caught.value.field == "voice"
    assert [entry.names for entry in store.entries()] == [("ann",), ("bob",)]
    store.register("bob", make_voice(1))
    store.delete("ann")
    store.register("cid", make_voice(2))


def test_voices_without_names_go_on_in_memory_where_named_ones_fill_the_store(tmp_path: Path) -> None:
    store, files = open_store(tmp_path, max_voices=1), tmp_path / "voices"
    store.register("ann", make_voice(0))
    store.put(make_voice(1))
    assert same_voice(store.find(make_voice(1).key), make_voice(1))
    assert [path.stem for path in files.iterdir()] == [make_voice(0).key]


def test_voice_larger_than_the_store_stays_in_memory_and_evicts_nothing(tmp_path: Path) -> None:
    small, large = make_voice(0), make_voice(1, tokens=100)
    store = open_store(tmp_path, max_bytes=len(encode_voice(large)) - 1)
    store.put(small)
    store.put(large)
    assert same_voice(store.find(large.key), large)
    assert [entry.key for entry in store.entries()] == [small.key]


def test_store_that_keeps_no_unnamed_voice_writes_none(tmp_path: Path) -> None:
    store = open_store(tmp_path, keeps_unnamed=False)
    store.put(make_voice(1))
    store.register("ann", make_voice(2))
    assert same_voice(store.find(make_voice(1).key), make_voice(1))
    assert [path.stem for path in (tmp_path / "voices").iterdir()] == [make_voice(2).key]


def test_unnamed_voices_are_forgotten_when_nobody_has_used_them_for_so_long(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register("ann", make_voice(0))
    for seed in (1, 2):
        store.put(make_voice(seed))
    for seed in (0, 1):
        os.utime(voice_path(tmp_path, make_voice(seed)), (0, 0))
    assert store.forget_unnamed(3600.0) == 1
    assert {entry.key for entry in store.entries()} == {make_voice(0).key, make_voice(2).key}
    assert store.find(make_voice(1).key) is None
    assert store.forget_unnamed(0.0) == 1
    assert [entry.names for entry in store.entries()] == [("ann",)]


def test_damaged_voice_goes_with_the_one_that_took_its_place(tmp_path: Path) -> None:
    voice, store = make_voice(1), open_store(tmp_path, memory_voices=0)
    store.put(voice)
    damage(voice_path(tmp_path, voice))
    assert store.find(voice.key) is None
    store.register("ann", voice)
    store.delete("ann")
    assert not list((tmp_path / "voices").iterdir())


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40), st.booleans()), max_size=15),
    st.integers(1, 5),
    st.integers(3_000, 60_000),
)
def test_store_never_exceeds_its_limits(
    tmp_path_factory: pytest.TempPathFactory,
    additions: list[tuple[int, int, bool]],
    max_voices: int,
    max_bytes: int,
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = open_store(directory, max_voices=max_voices, max_bytes=max_bytes, memory_voices=2)
    named: set[str] = set()
    for seed, tokens, with_name in additions:
        voice = make_voice(seed, tokens=tokens)
        try:
            store.register(f"name-{voice.key[:8]}", voice) if with_name else store.put(voice)
        except InvalidInput:
            continue
        named |= {voice.key} if with_name else set()
        files = list((directory / "voices").iterdir())
        assert len(files) <= max_voices
        assert sum(file.stat().st_size for file in files) <= max_bytes
        assert named <= {file.stem for file in files}
        assert same_voice(store.find(voice.key), voice)


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


def test_file_in_the_place_of_a_name_is_set_aside(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "names" / "ann.json").write_text("mine")
    store.register("ann", make_voice(1))
    assert same_voice(store.get("ann"), make_voice(1))
    assert (tmp_path / "names" / "ann.json.damaged").read_text() == "mine"


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


def test_entries_leave_out_what_is_no_voice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path)
    store.put(make_voice(1))
    store.put(make_voice(2))
    voice_path(tmp_path, make_voice(1)).write_bytes(b"no voice")
    with caplog.at_level(logging.ERROR):
        assert [entry.key for entry in store.entries()] == [make_voice(2).key]
    assert make_voice(1).key in caplog.text
    assert voice_path(tmp_path, make_voice(1)).read_bytes() == b"no voice"


def test_damaged_cache_entry_is_a_miss_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    voice = make_voice(1)
    open_store(tmp_path).put(voice)
    damage(voice_path(tmp_path, voice))
    with caplog.at_level(logging.ERROR):
        assert open_store(tmp_path).find(voice.key) is None
    assert voice.key in caplog.text


def test_voice_under_another_s_key_is_damage(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    left, right = make_voice(1), make_voice(2)
    store.put(left)
    voice_path(tmp_path, left).rename(voice_path(tmp_path, right))
    with pytest.raises(CheckpointError):
        store.get(right.key)


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


def test_memory_holds_only_the_most_recent_voices(tmp_path: Path) -> None:
    store = open_store(tmp_path, memory_voices=2)
    voices = [make_voice(seed) for seed in range(3)]
    for voice in voices:
        store.put(voice)
    assert store.get(voices[2].key) is voices[2]
    assert store.get(voices[1].key) is voices[1]
    assert store.get(voices[0].key) is not voices[0]
    assert store.get(voices[2].key) is not voices[2]


def hammer(directory: str, seed: int) -> int:
    """Put, get and delete at random; every voice read has to be right. Returns the voices read."""
    store = open_store(Path(directory), max_voices=4, memory_voices=seed % 3)
    choose, read = random.Random(seed), 0
    for _ in range(60):
        voice = make_voice(choose.randrange(8))
        action = choose.choice(["put", "find", "find", "delete"])
        if action == "put":
            store.put(voice)
        elif (found := store.find(voice.key)) is not None:
            assert same_voice(found, voice)
            read += 1
            if action == "delete":
                try:
                    store.delete(voice.key)
                except InvalidInput:  # another was faster
                    continue
    return read


def test_threads_share_one_store_directory(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(hammer, [str(tmp_path)] * 4, range(4))) > 0
    assert len(open_store(tmp_path).entries()) <= 4


def test_threads_share_one_store(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_voices=6, memory_voices=3)
    voices = [make_voice(seed) for seed in range(6)]

    def use(seed: int) -> None:
        for voice in random.Random(seed).sample(voices, 6):
            store.put(voice)
            assert same_voice(store.get(voice.key), voice)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(8)))
    assert len(store.entries()) == 6


def test_processes_share_one_store_directory(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert sum(pool.starmap(hammer, [(str(tmp_path), seed) for seed in range(4)])) > 0
    assert len(open_store(tmp_path).entries()) <= 4


@contextmanager
def full_disk() -> Iterator[None]:
    """Files that grow beyond 100 bytes are an error of the operating system."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_voice_that_can_not_be_written_is_found_in_memory_and_leaves_nothing(tmp_path: Path) -> None:
    store, voice = open_store(tmp_path), make_voice(1)
    with full_disk():
        store.put(voice)
    assert store.find(voice.key) is voice
    assert list((tmp_path / "voices").iterdir()) == []
    store.put(voice)
    assert same_voice(open_store(tmp_path).get(voice.key), voice)


def test_memory_holds_only_some_voices_that_can_not_be_written(tmp_path: Path) -> None:
    store, voices = open_store(tmp_path, memory_voices=2), [make_voice(seed) for seed in range(3)]
    with full_disk():
        for voice in voices:
            store.put(voice)
    assert [store.find(voice.key) for voice in voices] == [None, *voices[1:]]


def test_name_on_a_full_disk_is_an_error_and_the_name_keeps_its_voice(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register("ann", make_voice(1))
    with full_disk(), pytest.raises(StorageError, match="File too large") as caught:
        store.register("ann", make_voice(2))
    assert str(tmp_path) not in str(caught.value)
    assert same_voice(store.get("ann"), make_voice(1))


def test_deleted_directory_is_made_again(store: VoiceStore, tmp_path: Path) -> None:
    store.put(make_voice(1))
    store.register("ann", make_voice(2))
    shutil.rmtree(tmp_path)
    assert store.find(make_voice(1).key) is None
    with pytest.raises(InvalidInput, match="that is kept here"):
        store.get("ann")
    store.put(make_voice(1))
    found = store.find(make_voice(1).key)
    assert found is not None
    assert same_voice(found, make_voice(1))


def test_file_in_the_directory_s_place_fails_names_alone(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store, voice = open_store(directory), make_voice(1)
    shutil.rmtree(directory)
    directory.write_text("in the way")
    assert store.find(voice.key) is None
    store.put(voice)
    assert store.find(voice.key) is voice
    for operation in (store.entries, lambda: store.get("ann"), lambda: store.delete("ann")):
        with pytest.raises(StorageError):
            operation()
    with pytest.raises(StorageError):
        open_store(directory)


def test_another_process_that_holds_the_directory_fails_names_alone(tmp_path: Path, monkeypatch) -> None:
    """It may have been stopped."""
    store, voice = open_store(tmp_path), make_voice(1)
    monkeypatch.setattr(voice_store, "LOCK_WAIT_S", 0.05)
    with exclusive_lock(tmp_path / "lock"):
        store.put(voice)
        assert store.find(voice.key) is voice
        with pytest.raises(StorageError, match=r"somebody else has held its lock for 0\.05 s") as caught:
            store.register("ann", voice)
        assert str(tmp_path) not in str(caught.value)
    store.register("ann", voice)
    assert same_voice(store.get("ann"), voice)
