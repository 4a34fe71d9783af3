"""Who may call: a file with the hash of each key, reread when it changes.

    python -m cosyvoice_front.keys anna >> keys.txt

writes a line for the file, and prints the key on the terminal, once.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cosyvoice_front.errors import expired_key, no_key
from cosyvoice_front.key_line import FILE, Key, digest, read_line
from cosyvoice_front.limits.allowance import Allowance
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings

logger = logging.getLogger(__name__)

EVERYBODY = "everybody"
"""Owner of all requests where no keys are asked for."""
BEARER = "bearer "

Stamp = tuple[int, int, int]


class Keys:
    """Keys of a file; without a file everybody may call.

    Args:
        settings: limits of keys that have none of their own.
        now: seconds since the epoch.

    Raises:
        InvalidInput: the file can't be read, or a line says what none may.
    """

    def __init__(self, settings: FrontSettings, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._path = path = Path(settings.api_keys_file) if settings.api_keys_file else None
        self._stamp = None if path is None else _stamp(path)
        self._keys: Mapping[str, Key] = {}
        self._take({} if path is None else read_keys(path))

    @property
    def asked(self) -> bool:
        """Whether callers need a key."""
        return self._path is not None

    def owner(self, authorization: str | None) -> str:
        """Name of the key in an ``Authorization`` header.

        Raises:
            ApiError: it is none of them.
        """
        return EVERYBODY if self._path is None else self.owner_of(_bearer(authorization or ""))

    def owner_of(self, key: str) -> str:
        """Name of a key.

        Raises:
            ApiError: there is no such key, or it has expired.
        """
        if self._path is None:
            return EVERYBODY
        self._reread(self._path)
        found = self._keys.get(digest(key))
        if found is None:
            raise no_key()
        if found.until is not None and datetime.fromtimestamp(self._now(), UTC).date() > found.until:
            raise expired_key(found.until)
        return found.name

    def allowance(self, owner: str) -> Allowance:
        """How much the keys of a name may ask for, together."""
        return Allowance.of(self._settings, self._limits.get(owner, {}))

    def _take(self, keys: Mapping[str, Key]) -> None:
        self._keys = keys
        self._limits = {key.name: key.limits for key in keys.values()}

    def _reread(self, path: Path) -> None:
        """Take a changed file; one that can't be read leaves the keys as they were."""
        try:
            stamp = _stamp(path)
            if stamp != self._stamp:
                self._stamp = stamp
                self._take(read_keys(path))
                logger.info("%s: %d keys", path, len(self._keys))
        except InvalidInput as error:
            logger.error("the keys stay as they were: %s", error)


def read_keys(path: Path) -> dict[str, Key]:
    """Keys by their hash. Empty lines and those that begin with ``#`` say nothing.

    Raises:
        InvalidInput: the file can't be read, a line says what none may, or lines of one name
            differ in their limits.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(FILE, str(path), f"a readable file ({error})") from error
    keys: dict[str, Key] = {}
    limits: dict[str, tuple[int, dict[str, int]]] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        key = read_line(line, f"{path}:{number}")
        first, expected = limits.setdefault(key.name, (number, key.limits))
        if key.limits != expected:
            limit = f"the limits of line {first} are expected, which has the same name"
            raise InvalidInput(f"{FILE}: {path}:{number}", key.limits, limit)
        keys[key.digest] = key
    return keys


def _bearer(authorization: str) -> str:
    return authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""


def _stamp(path: Path) -> Stamp:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise InvalidInput(FILE, str(path), f"a readable file ({error})") from error
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def main() -> int:
    if len(sys.argv) != 2 or not re.fullmatch(r"\w[\w.-]{0,63}", sys.argv[1]):
        print("usage: python -m cosyvoice_front.keys NAME >> FILE", file=sys.stderr)
        return 2
    key = f"sk-{secrets.token_urlsafe(32)}"
    print(f"{sys.argv[1]} sha256:{digest(key)}")
    print(f"the key of {sys.argv[1]}, which is kept nowhere: {key}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
