"""Control characters of a text that comes in pieces."""

from __future__ import annotations

from bisect import bisect_right

from cosyvoice_runtime.speakable import BEGUN_CONTROL, CONTROLS, LINE_ENDS


class ControlDropper:
    """Drops control characters as :func:`~cosyvoice_runtime.speakable.without_controls` does of the whole."""

    def __init__(self) -> None:
        self._held = ""
        self._kept = 0
        self._dropped: list[int] = []  # for each dropped character, how many were kept before it

    def push(self, text: str) -> str:
        """Take more text; return what is kept of it. The beginning of a sequence waits for its end."""
        text = self._held + text
        begun = BEGUN_CONTROL.search(text)
        end = begun.start() if begun else len(text)
        self._held = text[end:]
        return self._without(text[:end])

    def flush(self) -> str:
        """Return what is kept of the rest, as if the text ended here; more may follow."""
        rest, self._held = self._held, ""
        return self._without(rest)

    def characters(self, kept: int) -> int:
        """Characters of what came up to the first ``kept`` of those kept, and what was dropped after them."""
        return kept + bisect_right(self._dropped, kept)

    def _without(self, text: str) -> str:
        parts, start = [], 0
        for control in CONTROLS.finditer(text):
            parts.append(text[start : control.start()])
            self._kept += control.start() - start
            start = control.end()
            self._dropped += [self._kept] * len(control[0])
        self._kept += len(text) - start
        return "".join([*parts, text[start:]]).translate(LINE_ENDS)
