"""Tags and marks of pauses in a text, which are no words of it."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.markup import tags
from cosyvoice_runtime.text.markup.line_ends import Break

PLAIN = "plain"
"""Markup of a text without tags."""
_SPELL = "spell"
_UNSAID = re.compile(rf"{tags.TAG.pattern}|<[?!][^<>]{{0,300}}>|\[pause:[^\[\]\n]{{0,20}}\]", re.IGNORECASE)
_BEGUN = re.compile(
    r"<(?:[/?!]|/?[A-Za-z][^<>]{0,340}|[?!][^<>]{0,300})?\Z"
    r"|\[(?:p(?:a(?:u(?:s(?:e(?::[^\[\]\n]{0,20})?)?)?)?)?)?\Z",
    re.IGNORECASE,
)


def blanked(text: str, markup: str | None = None) -> str:
    """The text with spaces in the place of its tags, as many as they have characters."""
    return text if markup == PLAIN else _UNSAID.sub(_blank, text)


class TagBlanker:
    """Blanks out the tags of a text that comes piece by piece."""

    def __init__(self, markup: str | None) -> None:
        self._markup = markup
        self._held = ""

    def push(self, text: str) -> str:
        """All that is known of the text by now and was not returned before; a tag waits for its end."""
        text = self._held + text
        begun = None if self._markup == PLAIN else _BEGUN.search(text)
        known = begun.start() if begun else len(text)
        self._held = text[known:]
        return blanked(text[:known], self._markup)

    def finish(self) -> str:
        """Return what was waiting, which nothing continues."""
        text, self._held = self._held, ""
        return text


def _blank(found: re.Match[str]) -> str:
    if found[1] and found[1].lower() != _SPELL:
        before = found.string[max(0, found.start() - 1) : found.start()]
        if not isinstance(tags.meaning(found, before.isalnum()), Break):
            return found[0]
    return " " * len(found[0])
