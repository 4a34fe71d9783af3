"""Lexicons of keys, of voices and by an id: files of ``front.lexicons``, read at the start."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from cosyvoice_front.errors import ApiError, invalid
from cosyvoice_front.text_fields import TextFields
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.settings.front import DEFAULT_VOICE
from cosyvoice_runtime.text.lexicon import MAX_OF_A_REQUEST, Lexicon

Words = dict[str, str]


class Lexicons:
    """Words by the name of what they belong to.

    Args:
        directory: has ``keys/NAME.txt``, ``voices/NAME.txt`` and ``dictionaries/ID.txt``; None for none.

    Raises:
        InvalidInput: a file is no lexicon, or has more words than a request may bring.
    """

    def __init__(self, directory: Path | None) -> None:
        if directory is not None and not directory.is_dir():
            raise InvalidInput("front.lexicons", str(directory), "a directory")
        self._keys = _read(directory, "keys")
        self._voices = _read(directory, "voices")
        self._dictionaries = _read(directory, "dictionaries")

    @classmethod
    def of(cls, directory: str) -> Lexicons:
        """Read the directory of a setting, which is empty for none."""
        return cls(Path(directory) if directory else None)

    def words(self, asked: TextFields, owner: str, voice: str | None) -> Words | None:
        """Return what is spoken, by word: the request counts first, then its dictionary, the voice, the key.

        Args:
            voice: its name on the server; empty for the default one, None for a recording and for turns.

        Raises:
            ApiError: there is no such dictionary, or there are too many words.
        """
        words = {
            **self._keys.get(owner, {}),
            **(self._voices.get(_same(voice or DEFAULT_VOICE), {}) if voice is not None else {}),
            **self._dictionary(asked.pronunciation_dict_id),
            **(asked.lexicon or {}),
        }
        if len(words) > MAX_OF_A_REQUEST:
            message = f"lexicon: {len(words)} words with those of the dictionary, the voice and the key"
            raise invalid("lexicon", f"{message}: at most {MAX_OF_A_REQUEST}.")
        return words or None

    def _dictionary(self, name: str | None) -> Words:
        if name is None:
            return {}
        if _same(name) not in self._dictionaries:
            message = f"The pronunciation dictionary {name!r} does not exist."
            raise ApiError(404, message, param="pronunciation_dict_id", code="pronunciation_dict_not_found")
        return self._dictionaries[_same(name)]


def _read(directory: Path | None, kind: str) -> dict[str, Words]:
    if directory is None:
        return {}
    paths = sorted((directory / kind).glob("*.txt"))
    return {_same(path.stem): Lexicon.read(path, UNITS, MAX_OF_A_REQUEST).words for path in paths}


def _same(name: str) -> str:
    """A name however its letters are composed."""
    return unicodedata.normalize("NFC", name)
