"""Voices that clients have sent, in the directory where the server keeps its voices.

``uploads/<name>.json`` says whose a voice is and who consented, ``uploads/recordings/<sha256>`` is what was
sent. The voice itself lies in the server's own store, under its name, so that gRPC knows it at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from cosyvoice_client import Reference
from cosyvoice_front.errors import invalid, overloaded, voice_not_found
from cosyvoice_front.upload import Upload
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint.family import FAMILIES
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.exclusive_lock import exclusive_lock
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.voice import Voice, VoiceStore, voice_key
from cosyvoice_runtime.voice.atomic import replace_file
from cosyvoice_runtime.voice.names import checked_name
from cosyvoice_runtime.voice.speakers import listed_speakers

LOCK_WAIT_S = 2.0
"""For another front that changes the voices: one that was stopped must not take this one's threads."""
RETRY_AFTER_MS = 1000


class Uploads:
    """Safe for threads and for several fronts that share the directory.

    Args:
        limits: the server's, of the same directory.
    """

    def __init__(self, directory: Path, limits: CosyVoice2Settings) -> None:
        self._voices = directory
        self._limits = limits
        published = limits.published_prompt_rate
        families = [family.with_published_prompts() if published else family for family in FAMILIES]
        self._mels = [family.mel for family in families]
        self._records = directory / "uploads"
        self._recordings = self._records / "recordings"
        self._recordings.mkdir(parents=True, exist_ok=True)

    def usable(self, name: str, owner: str) -> bool:
        """Whether a key may speak with what has this name; the server may have voices that nobody sent."""
        try:
            record = self._read(checked_name(name))
        except InvalidInput:
            return False
        return record is None or record.open_to(owner)

    def check_free(self, name: str) -> str:
        """The canonical spelling of a name that a new voice can have.

        Raises:
            ApiError: it is no name, or another voice has it.
        """
        try:
            name = checked_name(name)
        except InvalidInput as error:
            raise invalid("name", f"name: {error.value} is not accepted; {error.limit}.") from None
        if self._read(name) is not None or name in self._names():
            raise invalid("name", f"name: {name!r} is taken.", "voice_exists")
        return name

    def add(self, record: Upload, recording: bytes, reference: Reference) -> bool:
        """Name the voice that the server made of the reference; False when it has none of it (any more).

        Raises:
            ApiError: the name was taken in the meantime, or the store is full.
        """
        with self._locked():
            self.check_free(record.name)
            voice = self._analysed(reference)
            if voice is None:
                return False
            try:
                self._store(voice.checkpoint_id).register(record.name, voice)
            except InvalidInput as error:
                raise invalid("name", f"name: {error}.") from None
            replace_file(self._recordings / record.recording, recording)
            replace_file(self._path(record.name), json.dumps(asdict(record)).encode())
        return True

    def remove(self, name: str, owner: str) -> None:
        """Forget a voice, its consent and its recording.

        Raises:
            ApiError: there is none of this name that the key has sent.
        """
        with self._locked():
            record = self._read_own(name, owner)
            with suppress(InvalidInput):  # the server has lost it; the record goes all the same
                self._store().delete(record.name)
            self._path(record.name).unlink()
            if record.recording not in {other.recording for other in self._all()}:
                (self._recordings / record.recording).unlink(missing_ok=True)

    def listed(self, owner: str | None) -> list[dict[str, Any]]:
        """Voices with a name: those that a key may speak with, and those that nobody sent."""
        records = {record.name: record for record in self._all()}
        others = sorted(self._names() - records.keys())
        own = [{"object": "audio.voice", "id": name, "name": name, "owner": "system"} for name in others]
        return own + [record.shown() for record in records.values() if record.open_to(owner)]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                held.enter_context(exclusive_lock(self._records / "lock", wait_s=LOCK_WAIT_S))
            except TimeoutError:
                raise overloaded("The voices are being changed; try again.", RETRY_AFTER_MS) from None
            yield

    def _read_own(self, name: str, owner: str) -> Upload:
        try:
            record = self._read(checked_name(name))
        except InvalidInput:
            record = None
        if record is None or record.owner != owner:
            raise voice_not_found(name)
        return record

    def _read(self, name: str) -> Upload | None:
        try:
            return Upload(**json.loads(self._path(name).read_bytes()))
        except FileNotFoundError:
            return None

    def _all(self) -> Iterator[Upload]:
        for path in sorted(self._records.glob("*.json")):
            if (record := self._read(path.stem)) is not None:
                yield record

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
            max_bytes=self._limits.max_voices_mib << 20,
        )

    def _path(self, name: str) -> Path:
        return self._records / f"{name}.json"
