"""Voices with names in a folder, with their owners, consents and recordings, as a front keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Protocol

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.families import FAMILIES
from cosyvoice_runtime.voice.build import voice_key
from cosyvoice_runtime.voice.records import Permission, Record, VoiceRecords
from cosyvoice_runtime.voice.removal import remove_voice
from cosyvoice_runtime.voice.speakers import listed_speakers
from cosyvoice_runtime.voice.store import VoiceStore
from cosyvoice_runtime.voice.voice import Voice


class NamedVoices(Protocol):
    """Where a front keeps voices: :class:`FolderVoices`, or ``BucketVoices`` for many machines.

    Raises (all methods):
        StorageError, OSError: it can't be read or written.
    """

    def record(self, name: str) -> Record | None:
        """Who sent a voice, by the canonical spelling of its name; None where nobody did."""

    def records(self) -> Iterable[Record]:
        """Who sent which voice."""

    def names(self) -> set[str]:
        """Every name that has a voice, with the checkpoint's speakers."""

    def trial_token(self) -> str | None:
        """By which a server is asked to share the voice of a reference; None where it does so anyway."""

    def analysed(self, token: str | None, audio: Audio, transcript: str) -> Voice | None:
        """The voice that a server has made of a reference; None when there is none of it (any more)."""

    def keep(self, record: Record, recording: bytes, voice: Voice, check: Callable[[], object]) -> bool:
        """Keep a voice that a client has sent; False where its name is taken.

        The name comes last: a voice that anybody can speak with has its owner and its consent.

        Args:
            check: raises an error where the record may not be kept.
        """

    def remove(self, name: str, allowed: Permission) -> None:
        """Forget a voice, its consent and its recording.

        Raises:
            InvalidInput: there is no such voice, or it may not be removed.
        """


class FolderVoices:
    """In the folder where the server keeps its voices, so that both know them at once.

    Args:
        max_voices, max_bytes: as of the server's :class:`VoiceStore`.
    """

    def __init__(self, directory: Path, max_voices: int, max_bytes: int) -> None:
        self._directory = directory
        self._max_voices, self._max_bytes = max_voices, max_bytes
        self._records = VoiceRecords(directory)
        self._records.make()  # fails now rather than with the first voice

    def record(self, name: str) -> Record | None:
        return self._records.read(name)

    def records(self) -> Iterator[Record]:
        return self._records.all()

    def names(self) -> set[str]:
        stored = (name for entry in self._store().entries() for name in entry.names)
        return {*listed_speakers(self._directory), *stored}

    def trial_token(self) -> None:
        """None: the server leaves every voice that it makes in this folder."""

    def analysed(self, token: str | None, audio: Audio, transcript: str) -> Voice | None:  # noqa: ARG002
        """The voice that the server made of a reference, with whichever checkpoint it has."""
        checkpoints = {entry.checkpoint_id for entry in self._store().entries()}
        for checkpoint, family in product(checkpoints, FAMILIES):
            found = self._store(checkpoint).find(voice_key(audio, transcript, checkpoint, family.mel))
            if found is not None:
                return found
        return None

    def keep(self, record: Record, recording: bytes, voice: Voice, check: Callable[[], object]) -> bool:
        with self._records.locked():
            check()
            self._records.write(record, recording)
            try:
                self._store(voice.checkpoint_id).register(record["name"], voice)
            except BaseException:
                self._records.remove(record)
                raise
        return True

    def remove(self, name: str, allowed: Permission) -> None:
        remove_voice(self._store(), self._records, name, allowed)

    def _store(self, checkpoint_id: str = "") -> VoiceStore:
        return VoiceStore(
            self._directory, checkpoint_id, max_voices=self._max_voices, max_bytes=self._max_bytes
        )
