"""The voices of a server whose names lie in a bucket, which it shares with other servers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.store import VoiceStore, unknown_voice
from cosyvoice_runtime.voice.voice import Voice

if TYPE_CHECKING:
    from cosyvoice_runtime.voice.bucket_voices import BucketVoices


class CachedVoices:
    """Named voices out of a bucket, kept in memory and on disk; voices of references in a folder of its own.

    A name is asked for again after a moment, a voice never: it is called after its content.

    Args:
        shared: voices with names.
        own: voices of references that this server has analysed.
        cache: what was read of ``shared``.

    Raises (all methods):
        StorageAwayError: the bucket doesn't answer, and a name is asked for.
    """

    def __init__(self, shared: BucketVoices, own: VoiceStore, cache: VoiceStore, checkpoint_id: str) -> None:
        self.shared = shared
        self._own = own
        self._cache = cache
        self._checkpoint_id = checkpoint_id

    def put(self, voice: Voice) -> None:
        """As :meth:`VoiceStore.put`, for this server alone."""
        self._own.put(voice)

    def find(self, key: str) -> Voice | None:
        """As :meth:`VoiceStore.find`, of the references that this server has analysed."""
        return self._own.find(key)

    def get(self, name: str, others: Collection[str] = ()) -> Voice:
        """The voice of a name, or of the key of a reference; as :meth:`VoiceStore.get`."""
        if KEY.fullmatch(name):
            return self._own.get(name, others)
        entry = self.shared.entry(name)
        if entry is None:
            raise unknown_voice(name, others)
        known = self._cache.find(entry.voice)
        voice = known or self.shared.voice(entry)
        if voice is None:  # deleted meanwhile
            raise unknown_voice(name, others)
        voice.require_made_with(self._checkpoint_id, name)
        if known is None:
            self._cache.put(voice)
        return voice

    def names_of(self, name: str) -> tuple[str, ...]:
        """The name in its canonical spelling; empty when unknown."""
        entry = self.shared.entry(name)
        return () if entry is None else (entry.name,)

    def forget_unnamed(self, unused_s: float) -> int:
        """As :meth:`VoiceStore.forget_unnamed`, and what is in the cache without having a name any more."""
        named = {entry.voice for entry in self.shared.sweep()}
        for entry in self._cache.entries():
            if entry.key not in named:
                self._cache.delete(entry.key)
        return self._own.forget_unnamed(unused_s)
