"""When many have spoken and all have gone."""

from __future__ import annotations

from collections.abc import Callable

from cosyvoice_runtime.serving.token2wav.usage import Usage


class Crowd:
    """Notices that the last of several utterances has ended. One alone is none: the next may follow at once.

    Args:
        when_gone: called then.
    """

    def __init__(self, when_gone: Callable[[], None]) -> None:
        self._when_gone = when_gone
        self._most = 0

    def look(self, usage: Usage) -> None:
        """To be called after every change."""
        self._most = max(self._most, usage.utterances)
        if not usage.utterances:
            most, self._most = self._most, 0
            if most > 1:
                self._when_gone()
