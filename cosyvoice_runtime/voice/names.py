"""Human names of voices: one small JSON file each."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from pathlib import Path

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice.atomic import replace_file
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.set_aside import set_aside

logger = logging.getLogger(__name__)

NAME = re.compile(r"\w[\w.-]{0,63}")
"""Letters and digits of any script, as published speakers have Chinese names; no path can match."""
MAX_BYTES = 240  # a file's name may take 255


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
        path = self._path(name)
        if not _is_name(name) or not path.is_file():
            return None
        key = _read_key(path)
        if key is None:
            logger.error("not the name of a voice: %s", path)
        return key

    def by_key(self) -> dict[str, tuple[str, ...]]:
        """Every key that has a name, with its names."""
        names: dict[str, tuple[str, ...]] = {}
        for name in sorted(path.stem for path in self.directory.glob("*.json")):
            if key := self.get(name):
                names[key] = (*names.get(key, ()), name)
        return names

    def set(self, name: str, key: str) -> None:
        path = self._path(checked_name(name))
        if path.exists() and _read_key(path) is None:
            set_aside(path)
        replace_file(path, json.dumps({"voice": key}).encode())

    def remove(self, name: str) -> None:
        self._path(checked_name(name)).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.json"


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
    return bool(NAME.fullmatch(name)) and not KEY.fullmatch(name) and len(name.encode()) <= MAX_BYTES


def _read_key(path: Path) -> str | None:
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return None
    key = content.get("voice") if isinstance(content, dict) else None
    return key if isinstance(key, str) and KEY.fullmatch(key) else None
