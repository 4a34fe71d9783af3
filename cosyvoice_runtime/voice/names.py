"""Human names of voices: one small JSON file each."""

from __future__ import annotations

import json
import logging
import os
import unicodedata
from pathlib import Path
from typing import Any

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.files import SUFFIX, name_of, path_of, read_object, replace_file, set_aside

logger = logging.getLogger(__name__)

MAX_CHARACTERS = 64
MARKS = "_.-"


class VoiceNames:
    """Name -> key in a directory, for the holder of the store's lock.

    Other files in the directory are left alone. So is a damaged name, which is logged where it is met; its
    voice is then known by key alone.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def known(self) -> list[str]:
        """Every name, in order."""
        return sorted(name for names in self.by_key().values() for name in names)

    def get(self, name: str) -> str | None:
        """Key of a name; None when unknown, whatever the name looks like."""
        name = _canonical(name)
        if not _is_name(name):
            return None
        found, key = self._read(path_of(self.directory, name))
        return key if found == name else None

    def by_key(self) -> dict[str, tuple[str, ...]]:
        """Every key that has a name, with its names."""
        names: dict[str, tuple[str, ...]] = {}
        for name, key in sorted(map(self._read, self.directory.glob(f"*{SUFFIX}"))):
            if key and _is_name(name):
                names[key] = (*names.get(key, ()), name)
        return names

    def set(self, name: str, key: str) -> None:
        name = checked_name(name)
        path = path_of(self.directory, name)
        if path.exists() and not self._read(path)[1]:
            set_aside(path)
        replace_file(path, json.dumps({"voice": key, "name": name}).encode())

    def remove(self, name: str) -> None:
        path_of(self.directory, checked_name(name)).unlink(missing_ok=True)

    def _read(self, path: Path) -> tuple[str, str]:
        """Name and key in a file; the key is empty where there is no name of a voice."""
        if not path.is_file():
            return "", ""
        try:
            content: dict[str, Any] = read_object(path) or {}
        except PermissionError:
            logger.error("%s can't be read by user %d, so that this voice has no name", path, os.geteuid())
            return "", ""
        key = content.get("voice")
        if isinstance(key, str) and KEY.fullmatch(key):
            return name_of(path, content), key
        logger.error("not the name of a voice: %s", path)
        return "", ""


def checked_name(name: str) -> str:
    """The canonical spelling of a name.

    Raises:
        InvalidInput: it can't be a voice's name, such as a path or something that looks like a key.
    """
    canonical = _canonical(name)
    if not _is_name(canonical):
        limit = "expected 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter, digit or '_'"
        raise InvalidInput("voice", name, limit)
    return canonical


def _canonical(name: str) -> str:
    """One spelling for names that look alike."""
    return unicodedata.normalize("NFC", name)


def _is_name(name: str) -> bool:
    """Letters of any script, as published speakers have Chinese names, and the marks of theirs."""
    return (
        0 < len(name) <= MAX_CHARACTERS
        and (name[0].isalnum() or name[0] == "_")
        and all(character.isalnum() or character in MARKS or _is_mark(character) for character in name)
        and not KEY.fullmatch(name)
    )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
