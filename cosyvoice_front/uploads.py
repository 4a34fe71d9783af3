"""Voices that clients have sent, where the server keeps its voices, too.

Records say whose a voice is and who consented (:mod:`cosyvoice_runtime.voice.records`). The voice itself
has its name in the server's own store, so that gRPC knows it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from cosyvoice_client import Reference
from cosyvoice_front.errors import ApiError, invalid, overloaded, storage_failed, voice_not_found
from cosyvoice_front.upload import Upload
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput, StorageAwayError, StorageError
from cosyvoice_runtime.voice.folder_voices import NamedVoices
from cosyvoice_runtime.voice.names import checked_name
from cosyvoice_runtime.voice.store import StoreFullError

logger = logging.getLogger(__name__)


class Uploads:
    """Safe for threads and for several fronts that share the voices.

    Args:
        most: voices that the server keeps.
        most_of_a_key: voices that one key may keep; 0 is no limit.

    Raises (all methods):
        ApiError: the voices are away, or can't be read or written.
    """

    def __init__(self, kept: NamedVoices, most: int, most_of_a_key: int = 0) -> None:
        self._kept = kept
        self._most = most
        self._most_of_a_key = most_of_a_key

    def usable(self, name: str, owner: str) -> bool:
        """Whether a key may speak with what has this name; the server may have voices that nobody sent."""
        try:
            name = checked_name(name)
        except InvalidInput:
            return False
        with self._told():
            record = self._kept.record(name)
        return record is None or Upload(**record).open_to(owner)

    def sent_before(self, record: Upload) -> Upload | None:
        """The voice of the same name that the same owner has sent in the same way, or None."""
        with self._told():
            kept = self._kept.record(record.name)
            if kept is None or replace(earlier := Upload(**kept), created_at=record.created_at) != record:
                return None
            return earlier if record.name in self._kept.names() else None

    def trial_token(self) -> str | None:
        """By which the server is asked to share a voice; None where it does so anyway."""
        return self._kept.trial_token()

    def name(self, name: str) -> str:
        """The canonical spelling of a name; an ApiError tells that it is none."""
        try:
            return checked_name(name)
        except InvalidInput as error:
            raise invalid("name", f"name: {error.value} is not accepted; {error.limit}.") from None

    def check_free(self, name: str, owner: str) -> None:
        """Raise an ApiError where a key can't have a new voice of this name: it's taken, or there's no room.

        Args:
            name: in its canonical spelling.
        """
        with self._told():
            names, records = self._kept.names(), list(self._kept.records())
        if name in names or any(record["name"] == name for record in records):
            raise _taken(name)
        if len(names) >= self._most:
            message = f"name: {name!r}: the server has {self._most} voices, the most that it keeps."
            raise invalid("name", message, "too_many_voices")
        own = sum(record["owner"] == owner for record in records)
        if own >= self._most_of_a_key > 0:
            message = f"name: {name!r}: this key has {own} voices, the most that it may; delete one first."
            raise invalid("name", message, "too_many_voices")

    def add(
        self, record: Upload, recording: bytes, reference: Reference, token: str | None = None
    ) -> Upload | None:
        """Name the voice that the server made of the reference.

        Args:
            token: by which the server was asked to share it.

        Returns:
            The record that is kept; None when the server has none of the voice (any more).

        Raises:
            ApiError: the name was taken in the meantime, or there is no room.
        """
        with self._told():
            voice = self._kept.analysed(token, Audio(reference.samples, reference.rate), reference.text)
            if voice is None:
                return None
            try:
                free = partial(self.check_free, record.name, record.owner)
                if not self._kept.keep(asdict(record), recording, voice, free):
                    raise _taken(record.name)
            except ApiError:
                if earlier := self.sent_before(record):  # by the same client, at the same time
                    return earlier
                raise
        return record

    def remove(self, name: str, owner: str) -> None:
        """Forget a voice, its consent and its recording.

        Raises:
            ApiError: there is none of this name that the key has sent.
        """
        with self._told():
            try:
                self._kept.remove(
                    checked_name(name), lambda record: record is not None and record["owner"] == owner
                )
            except InvalidInput:
                raise voice_not_found(name) from None

    def listed(self, owner: str | None) -> list[dict[str, Any]]:
        """Voices with a name: those that a key may speak with, and those that nobody sent."""
        with self._told():
            records = [Upload(**record) for record in self._kept.records()]
            others = sorted(self._kept.names() - {record.name for record in records})
        own = [{"object": "audio.voice", "id": name, "name": name, "owner": "system"} for name in others]
        return own + [record.shown() for record in records if record.open_to(owner)]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what fails of the voices into an ApiError."""
        try:
            yield
        except TimeoutError:
            raise overloaded("The voices are being changed; try again.") from None
        except StoreFullError as error:
            raise invalid("name", f"name: {error}.", "too_many_voices") from None
        except InvalidInput as error:
            raise invalid("name", f"name: {error}.") from None
        except StorageAwayError as error:
            raise overloaded(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
        except (StorageError, OSError) as error:
            logger.error("the voices can't be read or changed: %s", error)
            raise storage_failed() from error


def _taken(name: str) -> ApiError:
    return invalid("name", f"name: {name!r} is taken.", "voice_exists")
