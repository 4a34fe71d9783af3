"""One folder of many machines: reading it waits for nobody, and hardly writes."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice import store as voice_store
from cosyvoice_runtime.voice.folder_voices import FolderVoices
from fake_voices import make_voice, open_store, same_voice, voice_path

ROUNDS = 40
LIMIT_S = 120.0


@contextmanager
def stuck_holder(directory: Path) -> Iterator[None]:
    """Another machine holds every lock of the folder, and has been stopped."""
    (directory / "uploads").mkdir(exist_ok=True)
    with open(directory / "lock", "ab") as store, open(directory / "uploads" / "lock", "ab") as records:
        fcntl.flock(store, fcntl.LOCK_EX)
        fcntl.flock(records, fcntl.LOCK_EX)
        yield


def test_a_stuck_lock_holder_does_not_delay_readers(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(voice_store, "LOCK_WAIT_S", LIMIT_S * 10)  # whoever waits for the lock hangs
    named, unnamed = make_voice(1), make_voice(2)
    store = open_store(tmp_path)
    store.register("ann", named)
    store.put(unnamed)
    with stuck_holder(tmp_path):
        for reader in (store, open_store(tmp_path), open_store(tmp_path, memory_voices=0)):
            assert same_voice(reader.get("ann"), named)
            assert same_voice(reader.get(named.key), named)
            assert same_voice(reader.find(unnamed.key), unnamed)
            assert reader.names_of("ann") == ("ann",)
            assert len(reader.entries()) == 2
            with pytest.raises(InvalidInput):
                reader.get("bob")


def test_a_stuck_lock_holder_does_not_delay_what_a_front_reads(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --front")
    from cosyvoice_front.uploads import Uploads

    monkeypatch.setattr(voice_store, "LOCK_WAIT_S", LIMIT_S * 10)
    open_store(tmp_path).register("ann", make_voice(1))
    with stuck_holder(tmp_path):
        uploads = Uploads(FolderVoices(tmp_path, 10, 1 << 20), 10)
        assert uploads.usable("ann", "anna")
        assert [voice["id"] for voice in uploads.listed("anna")] == ["ann"]


def test_uses_of_a_voice_within_a_minute_write_its_time_once(tmp_path: Path) -> None:
    store, voice = open_store(tmp_path), make_voice(1)
    store.register("ann", voice)
    path = voice_path(tmp_path, voice)
    recent, old = time.time() - 20, time.time() - 90
    os.utime(path, (recent, recent))
    store.get("ann")
    assert path.stat().st_mtime == pytest.approx(recent, abs=0.01)
    os.utime(path, (old, old))
    store.get("ann")
    assert path.stat().st_mtime > old + 60


def write(directory: str, done) -> None:
    """Move a name between two voices, and take it away between."""
    store = open_store(Path(directory))
    for turn in range(ROUNDS):
        store.register("moving", make_voice(turn % 2))
        if turn % 5 == 4:
            store.delete("moving")
    done.set()


def read(directory: str, done) -> tuple[int, int]:
    """How often a reader has found each name; what it finds is whole."""
    store, found, steady = open_store(Path(directory), memory_voices=0), 0, 0
    while not done.is_set():
        assert same_voice(store.get("steady"), make_voice(9))
        steady += 1
        try:
            voice = store.get("moving")
        except InvalidInput:
            continue
        assert any(same_voice(voice, make_voice(seed)) for seed in (0, 1))
        found += 1
    return found, steady


def test_a_writer_and_readers_in_three_processes_share_one_folder(tmp_path: Path) -> None:
    open_store(tmp_path).register("steady", make_voice(9))
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(3) as pool:
        done = manager.Event()
        readers = [pool.apply_async(read, (str(tmp_path), done)) for _ in range(2)]
        pool.apply_async(write, (str(tmp_path), done)).get(LIMIT_S)
        counts = [reader.get(LIMIT_S) for reader in readers]
    assert all(steady > 0 for _, steady in counts)
    assert not list(tmp_path.rglob("*.damaged"))
