"""Voices with names in a bucket, with their owners, consents and recordings, for all servers and fronts."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput, StorageAwayError, StorageError
from cosyvoice_runtime.voice.bucket import Bucket
from cosyvoice_runtime.voice.names import checked_name
from cosyvoice_runtime.voice.records import RECORDING, Permission, Record
from cosyvoice_runtime.voice.store import unknown_voice
from cosyvoice_runtime.voice.voice import Voice, decode_voice, encode_voice

logger = logging.getLogger(__name__)

SPEAKERS = "speakers.json"
NAMES, VOICES, RECORDINGS, INCOMING = "names", "voices", "recordings", "incoming"
GONE = b""
"""Content of a deleted name's object. It stays for a while, as no condition can be put on the removal of an
object: who removed it might remove what another has put in its place."""
LEAVING = b"leaving "
"""Begins the content of an object that is about to be removed, by whoever wrote it and by nobody else."""
SHOWN_BYTES = 100
FORGOTTEN_AFTER = timedelta(hours=1)
"""When objects are removed that no name came to have, because who wrote them has ended."""
GONE_AFTER = timedelta(days=1)
"""When the object of a deleted name is removed."""


@dataclass(frozen=True)
class Entry:
    """A registered voice, as it stands under its name.

    Attributes:
        voice: key of the voice.
        number: of this registration, which its voice and its recording have in their paths, so that no other
            one shares them.
        record: who sent it; None for a voice that no client has sent.
    """

    name: str
    voice: str
    number: str
    record: Record | None

    @property
    def paths(self) -> list[str]:
        """Its voice, and its recording if it has one."""
        voice = f"{VOICES}/{self.voice}/{self.number}"
        if self.record is None:
            return [voice]
        return [voice, f"{RECORDINGS}/{self.record[RECORDING]}/{self.number}"]


class BucketVoices:
    """``names/<SHA-256 of the name>`` is an :class:`Entry`, which comes last and goes first.

    A name is created where none is, and changed by its ETag, so that of many who want it one has it.

    Raises (all methods):
        StorageAwayError: the bucket doesn't answer.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def entry(self, name: str) -> Entry | None:
        """The entry of a name, as it was a moment ago; None under what is no name."""
        try:
            return _entry(self._bucket.read(_path(name)))
        except InvalidInput:
            return None

    def entries(self) -> list[Entry]:
        """Everything with a name that can be read, in the order of the names."""
        return self._entries()[0]

    def voice(self, entry: Entry) -> Voice | None:
        """The voice of an entry; None where it was deleted in the meantime."""
        content = self._bucket.fetch(path := entry.paths[0])
        return None if content is None else decode_voice(content, path)

    def record(self, name: str) -> Record | None:
        """Who sent a voice; None where nobody did."""
        entry = self.entry(name)
        return None if entry is None else entry.record

    def records(self) -> Iterator[Record]:
        """Who sent which voice."""
        return (entry.record for entry in self.entries() if entry.record is not None)

    def names(self) -> set[str]:
        """Every name that has a voice, with the speakers of the servers' checkpoints."""
        speakers = json.loads(self._bucket.read(SPEAKERS) or b"[]")
        return {*map(str, speakers), *(entry.name for entry in self.entries())}

    def list_speakers(self, names: Collection[str]) -> None:
        """Leave the checkpoint's speakers for whoever lists the voices."""
        content = json.dumps(sorted(names), ensure_ascii=False).encode()
        try:
            if self._bucket.read(SPEAKERS) != content:
                self._bucket.write(SPEAKERS, content)
        except StorageAwayError:  # logged where it was met, and no reason not to speak
            pass

    def keep(
        self, record: Record, recording: bytes, voice: Voice, check: Callable[[], object] = lambda: None
    ) -> bool:
        """Keep the voice that a client has sent; False where its name is taken.

        Args:
            check: raises an error where the record may not be kept.
        """
        check()
        entry = Entry(record["name"], voice.key, uuid.uuid4().hex, record)
        return self._write(entry, [encode_voice(voice), recording], lambda old: old is None)

    def register(self, name: str, voice: Voice) -> None:
        """Give a voice that no client has sent a name, which moves to it; an InvalidInput tells that a
        client has sent a voice of this name."""
        entry = Entry(checked_name(name), voice.key, uuid.uuid4().hex, None)
        if not self._write(entry, [encode_voice(voice)], lambda old: old is None or old.record is None):
            raise InvalidInput(
                "voice", name, "another name is needed: this one is a client's, or changes now"
            )

    def remove(self, name: str, allowed: Permission) -> None:
        """Forget a name, its voice, its consent and its recording.

        Raises:
            InvalidInput: there is no such voice, or it may not be removed.
        """
        seen = self._bucket.look(path := _path(name))
        entry = _entry(seen.content)
        if entry is None or not allowed(entry.record):
            raise unknown_voice(name)
        if not self._bucket.change(path, GONE, seen.etag):
            raise unknown_voice(name)  # somebody else has removed it
        self._forget(entry.paths)

    def leave(self, token: str, voice: Voice) -> None:
        """Leave a voice without a name for who has asked for it by this token, for an hour."""
        self._bucket.create(f"{INCOMING}/{token}", encode_voice(voice))

    def trial_token(self) -> str:
        """A new token, by which the server that makes a voice leaves it here."""
        return secrets.token_hex(16)

    def analysed(self, token: str | None, audio: Audio, transcript: str) -> Voice | None:  # noqa: ARG002
        """The voice that a server has left, which stands here no longer then; None where there is none."""
        content = self._bucket.fetch(path := f"{INCOMING}/{token}")
        if content is None:
            return None
        self._forget([path])
        return decode_voice(content, path)

    def sweep(self) -> list[Entry]:
        """Remove what no name came to have, and what a deletion has left; returns all entries.

        Which objects a name has that can't be read is unknown, so that with one all voices and recordings
        are left.
        """
        folders = (VOICES, RECORDINGS, INCOMING)
        old = [each["path"] for folder in folders for each in self._bucket.older(folder, FORGOTTEN_AFTER)]
        entries, all_were_read = self._entries()
        numbers = {entry.number for entry in entries}
        unnamed = [path for path in old if path.rpartition("/")[2] not in numbers]
        self._bucket.remove([path for path in unnamed if all_were_read or path.startswith(INCOMING)])
        self._sweep_names()
        return entries

    def _entries(self) -> tuple[list[Entry], bool]:
        """Everything with a name that can be read, and whether that is all; what can't be is logged."""
        entries, all_were_read = [], True
        for content in self._bucket.all(NAMES):
            try:
                entry = _entry(content)
            except StorageError:
                all_were_read = False
            else:
                entries += [entry] if entry else []
        return sorted(entries, key=lambda entry: entry.name), all_were_read

    def _sweep_names(self) -> None:
        """Remove the objects of names that were deleted long ago.

        Each is claimed by its ETag first. Nobody writes to it then, and nobody else claims it for as long.
        """
        for each in self._bucket.older(NAMES, GONE_AFTER):
            claim = LEAVING + uuid.uuid4().hex.encode()
            if each["size"] > len(claim):  # a voice's
                continue
            seen = self._bucket.look(each["path"])
            is_gone = seen.etag == each["e_tag"] and _is_free(seen.content)
            if is_gone and self._bucket.change(each["path"], claim, seen.etag):
                self._bucket.remove([each["path"]])

    def _write(self, entry: Entry, contents: list[bytes], may_follow: Callable[[Entry | None], bool]) -> bool:
        """Write what belongs to an entry, then the entry; False leaves nothing of them.

        Whether a write that fails has come through can't be known, so that it is left to :meth:`sweep`.

        Args:
            may_follow: whether the entry may take the place of this one.
        """
        for each, part in zip(entry.paths, contents, strict=True):
            self._bucket.write(each, part)
        path, content = _path(entry.name), json.dumps(asdict(entry)).encode()
        if self._bucket.create(path, content):
            return True
        seen = self._bucket.look(path)
        before = _entry(seen.content)
        if before != entry and may_follow(before) and not _is_leaving(seen.content):
            self._bucket.change(path, content, seen.etag)
            seen = self._bucket.look(path)
        written = _entry(seen.content) == entry  # also where only the answer to an earlier try was lost
        if not written:
            self._forget(entry.paths)
        elif before not in (None, entry):
            self._forget(before.paths)
        return written

    def _forget(self, paths: list[str]) -> None:
        """Remove objects that nobody can reach any more; what is left is swept in time."""
        try:
            self._bucket.remove(paths)
        except StorageAwayError:
            logger.warning("removed later: %s", ", ".join(paths))


def _path(name: str) -> str:
    """The object of a name; an InvalidInput tells that it is none."""
    return f"{NAMES}/{hashlib.sha256(checked_name(name).encode()).hexdigest()}"


def _is_leaving(content: bytes | None) -> bool:
    return content is not None and content.startswith(LEAVING)


def _is_free(content: bytes | None) -> bool:
    """Whether the object of a name says that no voice has it."""
    return not content or _is_leaving(content)


def _entry(content: bytes | None) -> Entry | None:
    """The entry in the object of a name; a StorageError tells that it can't be read, as does the log."""
    if not content or _is_free(content):
        return None
    try:
        return Entry(**json.loads(content))
    except (ValueError, TypeError) as error:
        logger.error("no name of a voice: %r (%s)", content[:SHOWN_BYTES], error)
        raise StorageError("a name in the bucket of the voices is damaged") from error
