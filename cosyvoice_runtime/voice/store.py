"""Voices on disk and in memory, bounded, shared by the threads and processes of one machine."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.errors import CheckpointError, InvalidInput, StorageError
from cosyvoice_runtime.process.exclusive_lock import exclusive_lock
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.files import remove_with_damaged, replace_file, set_aside
from cosyvoice_runtime.voice.names import VoiceNames, checked_name
from cosyvoice_runtime.voice.voice import OtherFormatError, Voice, encode_voice, read_header, read_voice


class RecentVoices:
    """The voices used last, by key, up to a limit; the least recently used one makes room.

    It is safe for threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._voices: OrderedDict[str, Voice] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Voice | None:
        """The voice of a key, which counts as used."""
        with self._lock:
            if key in self._voices:
                self._voices.move_to_end(key)
            return self._voices.get(key)

    def keep(self, voice: Voice) -> None:
        with self._lock:
            self._voices[voice.key] = voice
            self._voices.move_to_end(voice.key)
            while len(self._voices) > self._limit:
                self._voices.popitem(last=False)

    def forget(self, key: str) -> None:
        with self._lock:
            self._voices.pop(key, None)


logger = logging.getLogger(__name__)

SUFFIX = ".safetensors"
SHOWN_NAMES = 5
LOCK_WAIT_S = 30.0
"""Longest wait for another process that changes voices: a stopped one must not hold all others up."""
USED_AGAIN_S = 60.0
"""Uses of a voice within this time are written to the disk as one."""


class StoreFullError(InvalidInput):
    """Voices with names leave no room for one more."""


@dataclass(frozen=True)
class VoiceEntry:
    """A stored voice, without its tensors."""

    key: str
    names: tuple[str, ...]
    transcript: str
    checkpoint_id: str
    adapter: str
    size_bytes: int


class VoiceStore:
    """Content-addressed voices of one checkpoint under a directory.

    ``voices/<key>.safetensors`` is a voice, ``names/<name>.json`` one of its names. A voice without a
    name is a cache entry: the least recently used one goes when room is needed. A named voice stays
    until it is deleted. Files with other names are left alone. What changes the directory holds a lock on it,
    and makes it again when somebody has deleted it. What reads waits for nobody: every file is whole.

    Where voices with names fill the store, :meth:`put` goes on in memory. Where the disk is full or the
    directory can't be used, :meth:`find` and :meth:`put` do so and log it; the other operations raise
    :class:`StorageError`.

    Args:
        directory: made when absent; several stores may share it.
        checkpoint_id: voices of another checkpoint are refused.
        max_voices: files on disk; also the most names.
        max_bytes: bytes on disk.
        memory_voices: voices kept in this process's memory as well, the least recently used out first.
        keeps_unnamed: whether voices without a name are on disk; otherwise they are in memory alone.
    """

    def __init__(
        self,
        directory: str | Path,
        checkpoint_id: str,
        *,
        max_voices: int = 1000,
        max_bytes: int = 1 << 30,
        memory_voices: int = 64,
        keeps_unnamed: bool = True,
    ) -> None:
        self._checkpoint_id = checkpoint_id
        self._max_voices = max_voices
        self._max_bytes = max_bytes
        self._keeps_unnamed = keeps_unnamed
        self._memory = RecentVoices(memory_voices)
        self._unwritten = RecentVoices(memory_voices)
        self._directory = Path(directory)
        self._voices = self._directory / "voices"
        self._names = VoiceNames(self._directory / "names")
        self._threads = threading.Lock()
        with self._told():  # fails now rather than with the first voice
            self._make()

    def put(self, voice: Voice) -> None:
        """Store a voice, in memory alone if it can't be written; an InvalidInput for another checkpoint's."""
        voice.require_made_with(self._checkpoint_id, voice.key)
        if self._keeps_unnamed:
            try:
                with self._locked():
                    self._write(voice)
                return
            except StoreFullError as error:
                logger.warning("a voice is kept in memory alone: %s", error)
            except StorageError:  # logged where it was met
                pass
        self._unwritten.keep(voice)

    def register(self, name: str, voice: Voice) -> None:
        """Store a voice under a name; a name in use moves to this voice.

        Raises:
            InvalidInput: as :meth:`put`, or the name is none (:func:`checked_name`).
            StoreFullError: other names leave no room.
            StorageError: it can't be written.
        """
        name = checked_name(name)
        with self._locked():
            taken = self._names.known()
            if name not in taken and len(taken) >= self._max_voices:
                raise StoreFullError(
                    "voice", name, f"all {self._max_voices} names are taken; delete one first"
                )
            voice.require_made_with(self._checkpoint_id, voice.key)
            self._write(voice)
            self._names.set(name, voice.key)

    def get(self, name: str, others: Collection[str] = ()) -> Voice:
        """The voice of a name or key.

        Args:
            others: names of voices that are not in the store, for the error to list. It lists none of the
                store: whoever asks may not know of them.

        Raises:
            InvalidInput: it is unknown, or made with another checkpoint.
            CheckpointError: its file is of another format; or it was damaged, and is set aside now.
            StorageError: the directory can't be used.
        """
        with self._told():
            key = name if KEY.fullmatch(name) else self._names.get(name)
            voice = self._load(key) if key else None
        if voice is None:
            raise unknown_voice(name, others)
        voice.require_made_with(self._checkpoint_id, name)
        return voice

    def find(self, key: str) -> Voice | None:
        """The voice of a key, or None when it has to be built; one that can't be read is logged."""
        try:
            with self._told():
                if KEY.fullmatch(key) and (voice := self._load(key)):
                    return voice
        except (CheckpointError, StorageError):  # logged where it was met, and what is built anew replaces it
            pass
        return self._unwritten.get(key)

    def delete(self, name: str) -> None:
        """Forget a name, and its voice with its last name; or, by key, a voice with all its names.

        Raises:
            InvalidInput: it is unknown.
            StorageError: the directory can't be used.
        """
        with self._locked():
            key = self._resolve(name)
            if name == key:
                self._remove(key)
                return
            self._names.remove(name)
            if key not in self._names.by_key():
                self._remove(key)

    def names_of(self, name: str) -> tuple[str, ...]:
        """The name in its canonical spelling, or all names of the voice of a key; empty when unknown.

        Raises:
            StorageError: the directory can't be used.
        """
        with self._told():
            if KEY.fullmatch(name):
                return self._names.by_key().get(name, ())
            return (checked_name(name),) if self._names.get(name) else ()

    def forget_unnamed(self, unused_s: float) -> int:
        """Remove voices without a name that nobody has used for so long; returns how many.

        Raises:
            StorageError: the directory can't be used.
        """
        with self._locked():
            named, now = self._names.by_key(), time.time()
            old = [
                key
                for key, file in self._files().items()
                if key not in named and now - file.st_mtime >= unused_s
            ]
            for key in old:
                self._drop(key)
        return len(old)

    def entries(self) -> list[VoiceEntry]:
        """Every stored voice, also of other checkpoints, in the order of their names and keys.

        One that can't be read is logged and left out.
        """
        with self._told():
            names = self._names.by_key()
            entries = [entry for key in self._files() if (entry := self._entry(key, names.get(key, ())))]
        return sorted(entries, key=lambda entry: (not entry.names, entry.names, entry.key))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the directory; a StorageError tells what the operating system refuses in it."""
        with self._told(), self._threads:
            self._make()
            with exclusive_lock(self._directory / "lock", wait_s=LOCK_WAIT_S):
                yield

    def _make(self) -> None:
        """Make the directory when it is missing. No lock is taken: another process may hold it."""
        for folder in (self._voices, self._names.directory):
            folder.mkdir(parents=True, exist_ok=True)
        with open(self._directory / "lock", "ab"):
            pass

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what the operating system refuses into a StorageError."""
        try:
            yield
        except OSError as error:
            logger.error("voices in %s: %s", self._directory, error)
            raise StorageError(f"the directory of the voices can't be used: {error.strerror}") from error

    def _path(self, key: str) -> Path:
        return self._voices / f"{key}{SUFFIX}"

    def _files(self) -> dict[str, os.stat_result]:
        """Stored keys, the least recently used first."""
        files = {}
        with suppress(FileNotFoundError):  # the directory may have been removed
            for name in os.listdir(self._voices):
                key = name.removesuffix(SUFFIX)
                if key != name and KEY.fullmatch(key):
                    with suppress(FileNotFoundError):  # and so may a file, meanwhile
                        files[key] = self._path(key).stat()
        return dict(sorted(files.items(), key=lambda item: item[1].st_mtime_ns))

    def _resolve(self, name: str) -> str:
        key = name if KEY.fullmatch(name) else self._names.get(name)
        if key is None or not self._path(key).is_file():
            raise unknown_voice(name)
        return key

    def _write(self, voice: Voice) -> None:
        content = encode_voice(voice)
        self._make_room(voice.key, len(content))
        replace_file(self._path(voice.key), content)
        self._unwritten.forget(voice.key)
        self._memory.keep(voice)

    def _load(self, key: str) -> Voice | None:
        """The stored voice of a key, which counts as used; None without one.

        Raises:
            CheckpointError: its file is damaged, and is set aside, or is of another format.
        """
        path = self._path(key)
        try:
            self._note_use(path)
            voice: Voice | None = self._memory.get(key) or read_voice(path)
        except FileNotFoundError:
            return None
        except OtherFormatError as error:
            logger.error("%s", error)
            raise
        except CheckpointError:
            with self._locked():
                voice = self._reread(key)
        if voice is not None:
            self._memory.keep(voice)
        return voice

    def _note_use(self, path: Path) -> None:
        """The time of a file's modification is that of its voice's last use, to a minute."""
        if time.time() - path.stat().st_mtime >= USED_AGAIN_S:
            with suppress(OSError):  # who may read alone speaks all the same
                os.utime(path)

    def _reread(self, key: str) -> Voice | None:
        """Read a damaged voice again, which another process may have replaced; it is set aside if not."""
        try:
            return read_voice(self._path(key))
        except FileNotFoundError:
            return None
        except CheckpointError as error:
            names = self._forget_names(key)
            set_aside(self._path(key))
            logger.error("set aside a damaged voice, named %s: %s", ", ".join(names) or "nothing", error)
            raise

    def _entry(self, key: str, names: tuple[str, ...]) -> VoiceEntry | None:
        try:
            size = self._path(key).stat().st_size
            header = read_header(self._path(key))
        except FileNotFoundError:  # removed meanwhile
            return None
        except CheckpointError as error:
            logger.error("left out, named %s: %s", ", ".join(names) or "nothing", error)
            return None
        texts = header["transcript"], header["checkpoint_id"], header["adapter"]
        return VoiceEntry(key, names, *texts, size)

    def _remove(self, key: str) -> None:
        """Remove a voice and its names."""
        self._forget_names(key)
        self._drop(key)

    def _forget_names(self, key: str) -> tuple[str, ...]:
        """Remove the names of a voice, which are returned."""
        names = self._names.by_key().get(key, ())
        for name in names:
            self._names.remove(name)
        return names

    def _drop(self, key: str) -> None:
        self._memory.forget(key)
        remove_with_damaged(self._path(key))

    def _make_room(self, key: str, size: int) -> None:
        """Drop unnamed voices, the least recently used first, until one of ``size`` bytes fits."""
        files = self._files()
        files.pop(key, None)
        excess = len(files) + 1 - self._max_voices
        missing = sum(file.st_size for file in files.values()) + size - self._max_bytes
        if excess <= 0 and missing <= 0:
            return
        named = self._names.by_key()
        sizes = {unnamed: file.st_size for unnamed, file in files.items() if unnamed not in named}
        for victim in self._victims(sizes, excess, missing):
            self._drop(victim)

    def _victims(self, sizes: dict[str, int], excess: int, missing: int) -> list[str]:
        """The first keys whose removal frees ``excess`` files and ``missing`` bytes."""
        victims = []
        for key, size in sizes.items():
            if excess <= 0 and missing <= 0:
                break
            victims.append(key)
            excess -= 1
            missing -= size
        if excess > 0 or missing > 0:
            limit = f"named voices leave no room in {self._max_voices} voices and {self._max_bytes} bytes"
            raise StoreFullError("voice", "one more voice", f"{limit}; delete some first")
        return victims


def unknown_voice(name: str, others: Collection[str] = ()) -> InvalidInput:
    """The error for a name that no voice has; it lists some of the ``others``, which are public."""
    limit = "expected the name or key of a voice that is kept here"
    if others:
        names = sorted(others)
        limit += f", or a speaker: {', '.join(names[:SHOWN_NAMES])}"
        limit += ", ..." if len(names) > SHOWN_NAMES else ""
    return InvalidInput("voice", name, limit)
