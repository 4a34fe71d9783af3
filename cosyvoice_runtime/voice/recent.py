"""Voices in memory, bounded."""

from __future__ import annotations

from collections import OrderedDict

from cosyvoice_runtime.voice.voice import Voice


class RecentVoices:
    """The voices used last, by key.

    Args:
        limit: how many are kept; the least recently used one makes room.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._voices: OrderedDict[str, Voice] = OrderedDict()

    def get(self, key: str) -> Voice | None:
        """The voice of a key, which counts as used."""
        if key in self._voices:
            self._voices.move_to_end(key)
        return self._voices.get(key)

    def keep(self, voice: Voice) -> None:
        self._voices[voice.key] = voice
        self._voices.move_to_end(voice.key)
        while len(self._voices) > self._limit:
            self._voices.popitem(last=False)

    def forget(self, key: str) -> None:
        self._voices.pop(key, None)
