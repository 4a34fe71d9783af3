"""A line of the file of keys: a name, the hash of its key, and the key's own limits.

    anna sha256:HASH requests_per_minute=60 streams=4 until=2027-01-31

No error repeats what might be a key that somebody forgot to hash.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from cosyvoice_front.limits.allowance import SETTINGS
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings

FILE = "front.api_keys_file"
LINE = re.compile(r"(?P<name>[\w.-]{1,64})\s+sha256:(?P<digest>[0-9a-f]{64})(?P<words>(?:\s+\S+)*)")
UNTIL = "until"
DATE = re.compile(r"\d{4}-\d\d-\d\d")
WORDS = (*SETTINGS, UNTIL)
FORM = f"NAME sha256:HASH, then any of {', '.join(f'{word}=' for word in WORDS)}"
WORD = re.compile(r"[a-z_]{1,24}")
MOST_SHOWN = 10
"""Characters of a value that an error repeats: those of a date."""
HIDDEN = "(not shown: it may be a key)"


@dataclass(frozen=True)
class Key:
    """
    Attributes:
        digest: hash of the key, in hexadecimal.
        limits: of its own, by words of :data:`~cosyvoice_front.limits.allowance.SETTINGS`.
        until: last day (UTC) on which it counts; None is for ever.
    """

    name: str
    digest: str
    limits: dict[str, int] = field(default_factory=dict)
    until: date | None = None


def read_line(line: str, place: str) -> Key:
    """Read a line.

    Args:
        place: the file's name and the line's number, for errors.

    Raises:
        InvalidInput: it is no name and hash, or has an unknown word or a wrong value behind them.
    """
    match = LINE.fullmatch(line)
    if match is None:  # the line itself may be a key
        raise InvalidInput(FILE, place, FORM)
    read: dict[str, Any] = {}
    for word in match["words"].split():
        name, value = _split(word, place)
        shown = value if len(value) <= MOST_SHOWN and digest(value) != match["digest"] else HIDDEN
        where = f"{FILE}: {place}: {name}"
        if name in read:
            raise InvalidInput(where, shown, "it is in the line twice")
        try:
            read[name] = _value(name, value)
        except InvalidInput as error:
            raise InvalidInput(where, shown, error.limit) from None
    until = read.pop(UNTIL, None)
    return Key(match["name"], match["digest"], read, until)


def digest(key: str) -> str:
    """Hash of a key. Keys are drawn from 256 bits, so that nothing slower is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _split(word: str, place: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or name not in WORDS:
        shown = name if equals and WORD.fullmatch(name) else HIDDEN
        raise InvalidInput(f"{FILE}: {place}", shown, FORM)
    return name, value


def _value(name: str, text: str) -> int | date:
    """The value of a word; an InvalidInput says what was expected."""
    if name != UNTIL:
        setting = SETTINGS[name]
        return getattr(FrontSettings(**{setting: text}), setting)
    try:
        return date.fromisoformat(text if DATE.fullmatch(text) else "")
    except ValueError:
        raise InvalidInput(UNTIL, text, "a day as 2027-01-31 is expected") from None
