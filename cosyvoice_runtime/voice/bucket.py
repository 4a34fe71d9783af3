"""Objects under a prefix of a bucket that speaks S3, by obstore.

Endpoint, region and credentials come from the environment, as obstore reads it: ``AWS_ENDPOINT_URL``,
``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and the other variables of AWS.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
from obstore.store import S3Store

from cosyvoice_runtime.errors import InvalidInput, StorageAwayError

logger = logging.getLogger(__name__)

KNOWN_S, UNKNOWN_S = 1.0, 0.5
"""How old what is read may be: an object, and that there is none."""
READ_S, WRITE_S = 2, 30
"""Longest time that the bucket may take to answer. A recording has up to 10 MiB."""
MOST_KEPT = 10_000
READERS = 16
ANSWERS = (AlreadyExistsError, FileNotFoundError, NotModifiedError, PreconditionError)
"""Errors that are answers of a bucket that is well."""
CODE = re.compile(r"<Code>(\w+)</Code>")
NEEDED = "a bucket that is there, can be written, and has conditional writes (If-None-Match and If-Match)"


@dataclass(frozen=True)
class Seen:
    """An object as the bucket had it at a time; without content there was none."""

    content: bytes | None
    etag: str | None
    asked_at: float

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.asked_at

    @property
    def is_fresh(self) -> bool:
        return self.age_s < (UNKNOWN_S if self.content is None else KNOWN_S)


NOTHING = Seen(None, None, float("-inf"))


class Bucket:
    """Safe for threads. What was read is kept in memory, and asked for again by its ETag.

    Args:
        url: ``s3://bucket/prefix``.
        grace_s: how old what is kept may be to stand in for a bucket that is away.
        on_grace: called each time that it does.

    Raises:
        InvalidInput: the URL or a variable of the environment is none that obstore can use.
        StorageAwayError: (all methods) the bucket doesn't answer, or refuses. While it is away one caller
            waits for it, and all others are told at once.
    """

    def __init__(self, url: str, grace_s: float = 0.0, on_grace: Callable[[], object] = lambda: None) -> None:
        self._url = url
        self._grace_s, self._on_grace = grace_s, on_grace
        self._reading, self._writing = self._opened(READ_S), self._opened(WRITE_S)
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._lock, self._trial = threading.Lock(), threading.Lock()
        self._is_away = False

    def check(self) -> None:
        """Try what is needed with an object that is removed again; an InvalidInput says what is missing."""
        path = f"probe-{uuid.uuid4().hex}"
        try:
            list(obstore.list(self._reading, prefix="names"))
            obstore.put(self._writing, path, b"probe", mode="create")
            try:
                conditional = not (self.create(path, b"again") or self.change(path, b"changed", '"0"'))
            finally:
                obstore.delete(self._writing, [path])
        except (BaseError, OSError, StorageAwayError) as error:
            raise self._refused(_reason(error.__cause__ or error)) from error
        if not conditional:
            raise self._refused("it has overwritten an object in spite of a condition")

    def read(self, path: str) -> bytes | None:
        """An object as it was a moment ago, at most :data:`KNOWN_S`; None without one.

        While the bucket is away, one that was there within ``grace_s`` is taken to be there still. That
        there was none never lasts longer: by now it may be somebody's.
        """
        with self._lock:
            seen = self._seen.get(path, NOTHING)
        if seen.is_fresh:
            return seen.content
        stands_in = bool(seen.content) and seen.age_s < self._grace_s
        try:
            if stands_in and self._is_away:
                Thread(target=self._look_whether_it_is_back, args=(path,), daemon=True).start()
            else:
                return self.look(path).content
        except StorageAwayError:
            if not stands_in:
                raise
        self._on_grace()
        return seen.content

    def look(self, path: str) -> Seen:
        """An object as it is."""
        with self._lock:
            known = self._seen.get(path, NOTHING)
        asked_at = time.monotonic()
        condition: obstore.GetOptions = {"if_none_match": known.etag} if known.etag else {}
        try:
            with self._asking():
                found = obstore.get(self._reading, path, options=condition)
                seen = Seen(bytes(found.bytes()), found.meta["e_tag"], asked_at)
        except FileNotFoundError:
            seen = Seen(None, None, asked_at)
        except NotModifiedError:
            seen = Seen(known.content, known.etag, asked_at)
        self._keep(path, seen)
        return seen

    def fetch(self, path: str) -> bytes | None:
        """An object that nobody changes, and that isn't kept in memory; None without one."""
        try:
            with self._asking():
                return bytes(obstore.get(self._reading, path).bytes())
        except FileNotFoundError:
            return None

    def all(self, folder: str) -> list[bytes]:
        """The content of all objects of a folder as they are, but for empty ones."""
        asked_at = time.monotonic()
        with self._lock:
            known = dict(self._seen)
        found, unknown = [], []
        for path, etag in ((each["path"], each["e_tag"]) for each in self._listed(folder) if each["size"]):
            seen = known.get(path, NOTHING)
            if seen.content is not None and seen.etag == etag:
                found.append(seen.content)
                self._keep(path, Seen(seen.content, etag, asked_at))
            else:
                unknown.append(path)
        with ThreadPoolExecutor(READERS) as pool:
            looked = pool.map(self.look, unknown)
        return found + [seen.content for seen in looked if seen.content]

    def older(self, folder: str, than: timedelta) -> list[obstore.ObjectMeta]:
        """The objects of a folder that were written longer ago."""
        end = datetime.now().astimezone() - than
        return [each for each in self._listed(folder) if each["last_modified"] < end]

    def create(self, path: str, content: bytes) -> bool:
        """Write an object; False where there is one."""
        return self._put(path, content, "create")

    def change(self, path: str, content: bytes, etag: str | None) -> bool:
        """Write an object in place of the one with this ETag; False where there is another, or none."""
        return self._put(path, content, {"e_tag": etag}) if etag else False

    def write(self, path: str, content: bytes) -> None:
        """Write an object, whatever was there."""
        self._put(path, content, "overwrite")

    def remove(self, paths: list[str]) -> None:
        """Remove objects, some of which may be gone."""
        with self._told():
            if paths:
                obstore.delete(self._writing, paths)

    def _look_whether_it_is_back(self, path: str) -> None:
        with suppress(StorageAwayError):  # logged where it was met
            self.look(path)

    def _put(self, path: str, content: bytes, mode: obstore.PutMode) -> bool:
        try:
            with self._told():
                obstore.put(self._writing, path, content, mode=mode, use_multipart=False)
            return True
        except (AlreadyExistsError, PreconditionError):
            return False
        finally:
            with self._lock:
                self._seen.pop(path, None)

    def _listed(self, folder: str) -> list[obstore.ObjectMeta]:
        with self._asking():
            return [each for page in obstore.list(self._reading, prefix=folder) for each in page]

    def _keep(self, path: str, seen: Seen) -> None:
        with self._lock:
            self._seen[path] = seen
            self._seen.move_to_end(path)
            if len(self._seen) > MOST_KEPT:
                self._seen.popitem(last=False)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Read from the bucket, unless it is away and somebody else waits for it."""
        alone = self._is_away
        if alone and not self._trial.acquire(blocking=False):
            raise StorageAwayError
        try:
            with self._told():
                yield
        finally:
            if alone:
                self._trial.release()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
            self._is_away = False
        except ANSWERS:
            self._is_away = False
            raise
        except (BaseError, OSError) as error:
            self._is_away = True
            logger.error("cosyvoice2.voices_url: %s: %s", self._url, _reason(error))
            raise StorageAwayError from error

    def _opened(self, timeout_s: int) -> S3Store:
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        try:
            return S3Store.from_url(
                self._url,
                client_options={
                    "timeout": timedelta(seconds=timeout_s),
                    "connect_timeout": timedelta(seconds=1),
                    "allow_http": endpoint.startswith("http://"),
                },
                retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=timeout_s)},
            )
        except (BaseError, ValueError) as error:
            raise self._refused(_reason(error)) from error

    def _refused(self, reason: str) -> InvalidInput:
        return InvalidInput("cosyvoice2.voices_url", self._url, f"{NEEDED} is expected: {reason}")


def _reason(error: BaseException) -> str:
    """The first line of what obstore says, which goes on with its inner state, and the code of S3's error."""
    said = str(error).strip()
    code = CODE.search(said)
    return said.partition("\n")[0].partition(": <?xml")[0] + (f" ({code[1]})" if code else "")
