"""Voices that clients have sent, in the directory where the server keeps its voices.

Records say whose a voice is and who consented (:mod:`cosyvoice_runtime.voice.records`). The voice itself
lies in the server's own store, under its name, so that gRPC knows it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from cosyvoice_client import Reference
from cosyvoice_front.errors import ApiError, invalid, overloaded, storage_failed, voice_not_found
from cosyvoice_front.upload import Upload
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput, StorageError
from cosyvoice_runtime.families import FAMILIES
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.voice import Voice, VoiceStore, voice_key
from cosyvoice_runtime.voice.names import checked_name
from cosyvoice_runtime.voice.records import VoiceRecords
from cosyvoice_runtime.voice.removal import remove_voice
from cosyvoice_runtime.voice.speakers import listed_speakers
from cosyvoice_runtime.voice.store import StoreFullError

logger = logging.getLogger(__name__)


class Uploads:
    """Safe for threads and for several fronts that share the directory.

    Args:
        limits: the server's, of the same directory.
        most_of_a_key: voices that one key may keep; 0 is no limit.

    Raises:
        OSError: the directory can't be written.
    """

    def __init__(self, directory: Path, limits: CosyVoice2Settings, most_of_a_key: int = 0) -> None:
        self._voices = directory
        self._limits = limits
        self._most_of_a_key = most_of_a_key
        self._mels = [family.mel for family in FAMILIES]
        self._records = VoiceRecords(directory)
        self._records.make()  # fails now rather than with the first voice

    def usable(self, name: str, owner: str) -> bool:
        """Whether a key may speak with what has this name; the server may have voices that nobody sent."""
        try:
            record = self._read(checked_name(name))
        except InvalidInput:
            return False
        return record is None or record.open_to(owner)

    def check_free(self, name: str, owner: str) -> str:
        """The canonical spelling of a name that a new voice of a key can have.

        Raises:
            ApiError: it is no name, another voice has it, or there is no room for one more.
        """
        try:
            name = checked_name(name)
        except InvalidInput as error:
            raise invalid("name", f"name: {error.value} is not accepted; {error.limit}.") from None
        names = self._names()
        if self._records.read(name) is not None or name in names:
            raise invalid("name", f"name: {name!r} is taken.", "voice_exists")
        most = self._limits.max_voices
        if len(names) >= most:
            message = f"name: {name!r}: the server has {most} voices, the most that it keeps."
            raise invalid("name", message, "too_many_voices")
        own = sum(record.owner == owner for record in self._all())
        if own >= self._most_of_a_key > 0:
            message = f"name: {name!r}: this key has {own} voices, the most that it may; delete one first."
            raise invalid("name", message, "too_many_voices")
        return name

    def add(self, record: Upload, recording: bytes, reference: Reference) -> bool:
        """Name the voice that the server made of the reference; False when it has none of it (any more).

        The name comes last: a voice that anybody can speak with has its owner and its consent.

        Raises:
            ApiError: the name was taken in the meantime, or there is no room.
        """
        with self._locked():
            self.check_free(record.name, record.owner)
            voice = self._analysed(reference)
            if voice is None:
                return False
            kept = asdict(record)
            self._records.write(kept, recording)
            try:
                self._store(voice.checkpoint_id).register(record.name, voice)
            except BaseException:
                self._records.remove(kept)
                raise
        return True

    def remove(self, name: str, owner: str) -> None:
        """Forget a voice, its consent and its recording.

        Raises:
            ApiError: there is none of this name that the key has sent.
        """
        try:
            remove_voice(
                self._store(),
                self._records,
                checked_name(name),
                lambda record: record is not None and record["owner"] == owner,
            )
        except InvalidInput:
            raise voice_not_found(name) from None
        except TimeoutError:
            raise _busy() from None
        except (StorageError, OSError) as error:
            raise _failed(error) from error

    def listed(self, owner: str | None) -> list[dict[str, Any]]:
        """Voices with a name: those that a key may speak with, and those that nobody sent."""
        records = {record.name: record for record in self._all()}
        others = sorted(self._names() - records.keys())
        own = [{"object": "audio.voice", "id": name, "name": name, "owner": "system"} for name in others]
        return own + [record.shown() for record in records.values() if record.open_to(owner)]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the records.

        Raises:
            ApiError: somebody else does, or what is done meanwhile fails for want of room.
        """
        try:
            with self._records.locked():
                yield
        except TimeoutError:
            raise _busy() from None
        except StoreFullError as error:
            raise invalid("name", f"name: {error}.", "too_many_voices") from None
        except InvalidInput as error:
            raise invalid("name", f"name: {error}.") from None
        except (StorageError, OSError) as error:
            raise _failed(error) from error

    def _read(self, name: str) -> Upload | None:
        record = self._records.read(name)
        return None if record is None else Upload(**record)

    def _all(self) -> Iterator[Upload]:
        return (Upload(**record) for record in self._records.all())

    def _names(self) -> set[str]:
        stored = (name for entry in self._store().entries() for name in entry.names)
        return {*listed_speakers(self._voices), *stored}

    def _analysed(self, reference: Reference) -> Voice | None:
        """The voice that the server made of a reference, with whichever checkpoint it has."""
        audio = Audio(reference.samples, reference.rate)
        checkpoints = {entry.checkpoint_id for entry in self._store().entries()}
        for checkpoint, mel in product(checkpoints, self._mels):
            found = self._store(checkpoint).find(voice_key(audio, reference.text, checkpoint, mel))
            if found is not None:
                return found
        return None

    def _store(self, checkpoint_id: str = "") -> VoiceStore:
        return VoiceStore(
            self._voices,
            checkpoint_id,
            max_voices=self._limits.max_voices,
            max_bytes=self._limits.max_voice_bytes,
        )


def _busy() -> ApiError:
    return overloaded("The voices are being changed; try again.")


def _failed(error: Exception) -> ApiError:
    logger.error("the voices can't be changed: %s", error)
    return storage_failed()
