"""Who may call: a file with the hash of each key, reread when it changes.

    python -m cosyvoice_front.keys anna >> keys.txt

writes a line for the file, and prints the key on the terminal, once.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import sys
from pathlib import Path

from cosyvoice_front.errors import no_key
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings

logger = logging.getLogger(__name__)

LINE = re.compile(r"(?P<name>[\w.-]{1,64}) sha256:(?P<digest>[0-9a-f]{64})")
EVERYBODY = "everybody"
"""Owner of all requests where no keys are asked for."""
BEARER = "bearer "

Stamp = tuple[int, int, int]


class Keys:
    """Keys of a file; without a file everybody may call.

    Raises:
        InvalidInput: the file can't be read, or a line is no name and hash.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp = None if path is None else _stamp(path)
        self._names = {} if path is None else read_keys(path)

    @classmethod
    def of(cls, settings: FrontSettings) -> Keys:
        return cls(Path(settings.api_keys_file) if settings.api_keys_file else None)

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
            ApiError: there is no such key.
        """
        if self._path is None:
            return EVERYBODY
        self._reread(self._path)
        name = self._names.get(digest(key))
        if name is None:
            raise no_key()
        return name

    def _reread(self, path: Path) -> None:
        """Take a changed file; one that can't be read leaves the keys as they were."""
        try:
            stamp = _stamp(path)
            if stamp != self._stamp:
                self._stamp = stamp
                self._names = read_keys(path)
                logger.info("%s: %d keys", path, len(self._names))
        except InvalidInput as error:
            logger.error("the keys stay as they were: %s", error)


def read_keys(path: Path) -> dict[str, str]:
    """Names by the hash of their key. Empty lines and those that begin with ``#`` say nothing."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("front.api_keys_file", str(path), f"a readable file ({error})") from error
    names = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:  # the line itself may be a key that somebody forgot to hash
            raise InvalidInput("front.api_keys_file", f"{path}:{number}", "NAME sha256:HASH")
        names[match["digest"]] = match["name"]
    return names


def digest(key: str) -> str:
    """Hash of a key. Keys are drawn from 256 bits, so that nothing slower is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _bearer(authorization: str) -> str:
    return authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""


def _stamp(path: Path) -> Stamp:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise InvalidInput("front.api_keys_file", str(path), f"a readable file ({error})") from error
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
