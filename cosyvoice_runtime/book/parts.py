"""The folder beside an output that keeps what is spoken of a book: a file of sound for each passage."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.book.chapters import DIGITS
from cosyvoice_runtime.engine.utterance.request import fresh_seed
from cosyvoice_runtime.errors import InvalidInput, StorageError
from cosyvoice_runtime.voice.files import INCOMING, read_object, replace_file

MANIFEST = "book.json"
FORMAT = 1
"""Version of the folder's files."""
WHOLE = "whole"
"""Name of the output while it is written."""
_KEY = rf"[0-9a-f]{{{DIGITS}}}-\d+"
_ABOUT = re.compile(rf"{_KEY}\.json")
"""Matches the name of the file without which a passage is not kept."""
_OWN = re.compile(rf"{MANIFEST}|{_KEY}\.(?:flac|json)|{WHOLE}\.\w+|{re.escape(INCOMING)}")
"""Finds names of files that this module writes, which are the only ones that it removes."""

Pcm = npt.NDArray[np.int16]
Settings = Mapping[str, Any]
"""All that the sound of a text depends on, by names that the user knows; what JSON can hold."""


class Part(NamedTuple):
    """A spoken passage without its sound.

    Attributes:
        samples: how many its sound has.
        sample_rate: per second.
        words_by: how its words are timed.
    """

    samples: int
    sample_rate: int
    words_by: str


class BookParts:
    """The folder of one book, which :func:`open_parts` opens. Passages go by their keys (:func:`keys_of`).

    Attributes:
        directory: the folder.
        seed: of the whole book.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.seed = directory, seed

    def write(
        self, key: str, samples: Pcm, sample_rate: int, words: Sequence[TimedWord], words_by: str
    ) -> Part:
        """Keep a passage: its sound, and then what belongs to it, so that a part is whole or not there.

        Raises:
            StorageError: the disk is full, or the folder can't be written.
        """
        sound = io.BytesIO()
        soundfile.write(sound, samples, sample_rate, "PCM_16", format="FLAC")
        content = {
            "sha256": hashlib.sha256(sound.getbuffer()).hexdigest(),
            "samples": len(samples),
            "sample_rate": sample_rate,
            "words": words,
            "words_by": words_by,
        }
        _keep(self._sound(key), sound.getvalue())
        _keep(self._about(key), json.dumps(content, ensure_ascii=False).encode())
        return Part(len(samples), sample_rate, words_by)

    def refuse_others(self, keys: Iterable[str]) -> None:
        """Raise a StorageError where passages are kept, and none of them is of the book with these keys."""
        kept = {path.stem for path in self.directory.iterdir() if _ABOUT.fullmatch(path.name)}
        if kept and kept.isdisjoint(keys):
            told = f"it keeps {len(kept)} passages of another book, which would be lost"
            raise StorageError(f"{self.directory}: {told}; name another output, or begin anew: --restart")

    def read(self, key: str) -> Part | None:
        """A passage that is kept; None where it is not, or where one of its files is damaged."""
        content = read_object(self._about(key))
        try:
            if content is None or content["sha256"] != _sha256_of(self._sound(key)):
                return None
            self.words(key)
            return Part(int(content["samples"]), int(content["sample_rate"]), str(content["words_by"]))
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None

    def words(self, key: str) -> list[TimedWord]:
        """The words of a passage that is kept; seconds count from its first sample."""
        content = read_object(self._about(key)) or {}
        return [TimedWord(str(word), float(start), float(end)) for word, start, end in content["words"]]

    def sound(self, key: str) -> Pcm:
        """The samples of a passage that is kept, ``[n]``."""
        samples: Pcm = soundfile.read(self._sound(key), dtype="int16")[0]
        return samples

    @contextmanager
    def output(self, path: Path) -> Iterator[Path]:
        """A file to be written in the folder, which takes the place of the output when it is whole, or goes.

        Raises:
            StorageError: it can't be written.
        """
        whole = self.directory / f"{WHOLE}{path.suffix}"
        try:
            with _kept_on_errors(path):
                yield whole
                with open(whole, "rb") as file:
                    os.fsync(file.fileno())
                os.replace(whole, path)
        finally:
            whole.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder; files of others in it stay, and it with them."""
        _clear(self.directory)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    def _sound(self, key: str) -> Path:
        return self.directory / f"{key}.flac"

    def _about(self, key: str) -> Path:
        return self.directory / f"{key}.json"


@contextmanager
def open_parts(
    directory: Path, settings: Settings, seed: int | None, *, restart: bool
) -> Iterator[BookParts]:
    """Open a book's folder, or begin it, for this process alone; one in which nothing is kept begins anew.

    Args:
        settings: all that the sound depends on, besides the text and the seed.
        seed: of the book; None for the one that it was begun with, or a fresh one.
        restart: forget what was spoken.

    Raises:
        InvalidInput: the book was begun with other settings, which the text names.
        StorageError: the folder is another's, is in use, or its list is damaged or can't be written.
        OSError: it can't be made or read.
    """
    directory.mkdir(exist_ok=True)
    with _locked(directory):
        manifest = directory / MANIFEST
        if restart or not any(map(_ABOUT.fullmatch, os.listdir(directory))):
            _clear(directory)
        if manifest.exists():
            seed = _checked(manifest, settings, seed)
        else:
            if foreign := sorted(path.name for path in directory.iterdir() if not _OWN.fullmatch(path.name)):
                raise StorageError(f"{directory}: it is no folder of a book, and holds {foreign[0]}")
            seed = fresh_seed() if seed is None else seed
            content = {"format": FORMAT, "seed": seed, "settings": settings}
            _keep(manifest, json.dumps(content, ensure_ascii=False, indent=1).encode())
        yield BookParts(directory, seed)


def _checked(manifest: Path, settings: Settings, seed: int | None) -> int:
    """The seed of a book that was begun with these settings."""
    content = read_object(manifest) or {}
    known = isinstance(content.get("seed"), int) and isinstance(content.get("settings"), dict)
    if not known or content.get("format") != FORMAT:
        raise StorageError(f"{manifest}: it is damaged, or of another version; --restart begins anew")
    begun = {**content["settings"], "seed": content["seed"]}
    asked = {**json.loads(json.dumps(settings)), "seed": begun["seed"] if seed is None else seed}
    differing = [name for name in sorted({*begun, *asked}) if begun.get(name) != asked.get(name)]
    if differing:
        told = "; ".join(f"{name}: {_shown(begun.get(name))} there" for name in differing)
        name = differing[0]
        limit = f"{manifest.parent} was begun with others ({told}); ask for those, or begin anew: --restart"
        raise InvalidInput(name, _shown(asked.get(name)), limit)
    return int(begun["seed"])


def _keep(path: Path, content: bytes) -> None:
    with _kept_on_errors(path):
        replace_file(path, content)


@contextmanager
def _kept_on_errors(path: Path) -> Iterator[None]:
    """Make a StorageError, which names the file, of what the operating system says while it is written."""
    try:
        yield
    except OSError as error:
        kept = "what is spoken by now is kept, and the same command goes on"
        raise StorageError(f"{path}: {error.strerror or error}; {kept}") from error


def _shown(value: object) -> object:
    """A value for an error; of a long one, such as a hash, the beginning."""
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 40 else value


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    folder = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(f"{directory}: another process is writing this book") from error
        yield
    finally:
        os.close(folder)


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if _OWN.fullmatch(path.name):
            path.unlink()


def _sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
