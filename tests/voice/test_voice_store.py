from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.errors import CheckpointError, InvalidInput, StorageError
from cosyvoice_runtime.process.exclusive_lock import exclusive_lock
from cosyvoice_runtime.voice import VoiceStore
from cosyvoice_runtime.voice import store as voice_store
from cosyvoice_runtime.voice.store import StoreFullError
from cosyvoice_runtime.voice.voice import decode_voice, encode_voice
from fake_voices import CHECKPOINT, make_voice, open_store, same_voice, voice_path


@pytest.mark.parametrize("tokens", [0, 1, 30])
def test_voice_comes_back_by_name_and_by_key(store: VoiceStore, tokens: int) -> None:
    voice = make_voice(1, tokens=tokens, transcript='你好, "hello"\n')
    store.register("ann", voice)
    assert same_voice(store.get("ann"), voice)
    assert same_voice(store.get(voice.key), voice)
    found = store.find(voice.key)
    assert found is not None
    assert same_voice(found, voice)


def test_a_voice_keeps_its_adapter_and_is_another_than_without_it(tmp_path: Path) -> None:
    plain = make_voice(1)
    warm, crisp = plain.with_adapter("warm"), plain.with_adapter("crisp")
    assert len({plain.key, warm.key, crisp.key}) == 3
    assert {plain.prompt_key, warm.prompt_key} == {plain.prompt_key}
    assert b"adapter" not in encode_voice(plain)
    open_store(tmp_path).register("ann", warm)
    assert open_store(tmp_path).get("ann").adapter == "warm"
    open_store(tmp_path).register("bob", plain)
    assert [entry.adapter for entry in open_store(tmp_path).entries()] == ["warm", ""]
    assert decode_voice(encode_voice(crisp), "here").adapter == "crisp"


def test_an_adapter_that_is_changed_in_the_file_is_damage() -> None:
    content = encode_voice(make_voice(1).with_adapter("warm"))
    with pytest.raises(CheckpointError, match="doesn't match its digest"):
        decode_voice(content.replace(b'"warm"', b'"cold"'), "here")


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
