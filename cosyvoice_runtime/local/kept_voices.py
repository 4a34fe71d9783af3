"""Voices that the command line keeps: in a folder, or in the bucket that many servers share."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.opening import open_bucket
from cosyvoice_runtime.voice.records import VoiceRecords
from cosyvoice_runtime.voice.removal import remove_voice
from cosyvoice_runtime.voice.store import unknown_voice

if TYPE_CHECKING:
    from cosyvoice_runtime.voice.bucket_voices import BucketVoices, Entry

SCHEME = "s3://"
READERS = 16
NO_CHECKPOINT = ""
"""The checkpoint of a voice store with which no voice is used for speech."""


class Line(NamedTuple):
    """A voice, as it is listed."""

    names: tuple[str, ...]
    key: str
    transcript: str
    adapter: str


class KeptInFolder:
    """In a folder that a server may have as its ``cosyvoice2.voices_dir``; its errors are the store's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def lines(self) -> Iterable[Line]:
        entries = self._there().entries()
        return [Line(each.names, each.key, each.transcript, each.adapter) for each in entries]

    def is_clients(self, name: str) -> bool:
        """Whether a client has sent a voice of this name."""
        return VoiceRecords(self._directory).read(name) is not None

    def add(self, name: str, voice: Voice) -> None:
        VoiceStore(self._directory, voice.checkpoint_id).register(name, voice)

    def remove(self, name: str) -> None:
        """Forget a name, or a key with all its names, and what a client has sent with it."""
        remove_voice(self._there(), VoiceRecords(self._directory), name)

    def _there(self) -> VoiceStore:
        if not self._directory.exists():
            raise InvalidInput("voices", str(self._directory), "there is no such directory")
        return VoiceStore(self._directory, NO_CHECKPOINT)


class KeptInBucket:
    """In a bucket, as ``cosyvoice2.voices_url`` names it; a StorageAwayError tells that it is away."""

    def __init__(self, url: str) -> None:
        self._url = url

    def lines(self) -> Iterable[Line]:
        """Every voice but those that somebody deletes meanwhile."""
        kept = open_bucket(self._url)
        with ThreadPoolExecutor(READERS) as pool:
            found = pool.map(lambda entry: _line(kept, entry), kept.entries())
        return [line for line in found if line is not None]

    def is_clients(self, name: str) -> bool:
        return open_bucket(self._url, check=True).record(name) is not None

    def add(self, name: str, voice: Voice) -> None:
        open_bucket(self._url).register(name, voice)

    def remove(self, name: str) -> None:
        kept = open_bucket(self._url, check=True)
        for each in _names(kept, name) if KEY.fullmatch(name) else [name]:
            kept.remove(each, lambda _: True)


def kept_voices(place: Path | str) -> KeptInFolder | KeptInBucket:
    """The voices of a folder, or of a bucket; an InvalidInput tells that its address is none."""
    if isinstance(place, Path):
        return KeptInFolder(place.expanduser())
    return KeptInBucket(bucket_url(place))


def place(text: str) -> Path | str:
    """A folder, or the address of a bucket, as the command line has it."""
    return text if text.startswith(SCHEME) else Path(text)


def bucket_url(text: str) -> str:
    """The address of a bucket; an InvalidInput tells that it is none."""
    try:
        return CosyVoice2Settings(voices_url=text).voices_url
    except InvalidInput as error:
        raise InvalidInput("voices", text, "a directory, or s3://BUCKET/PREFIX") from error


def _line(kept: BucketVoices, entry: Entry) -> Line | None:
    voice = kept.voice(entry)
    return None if voice is None else Line((entry.name,), entry.voice, voice.transcript, voice.adapter)


def _names(kept: BucketVoices, key: str) -> list[str]:
    names = [entry.name for entry in kept.entries() if entry.voice == key]
    if not names:
        raise unknown_voice(key)
    return names
