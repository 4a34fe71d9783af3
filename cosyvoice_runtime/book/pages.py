"""Reads the files of an EPUB: paragraphs of its pages, entries of its lists.

They are read with the standard library's parser of HTML, for which a file is a row of tags: it knows no
entities but HTML's own, reads no other file, and takes what isn't well formed.
"""

from __future__ import annotations

import re
from collections.abc import Container
from html.parser import HTMLParser
from typing import NamedTuple

_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|caption|center|d[dlt]|details|div|fig(?:caption|ure)|footer|h[1-6r]|"
    "header|li|main|nav|[ou]l|p|pre|section|t[dhr]|table|t(?:body|foot|head)"
)
"""Matches elements of HTML whose text stands apart from what is around them."""
_SILENT = re.compile("head|math|r[pt]|script|style|svg|title")
"""Matches elements that are not read aloud; of a ruby, the characters are."""
_EMPTY = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
"""Matches elements that have no end."""
_HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
"""Finds what hides an element in its own style; style sheets are not read."""
HEADINGS = ("h1", "h2")
_NOTES = {"epub:type": "noteref", "role": "doc-noteref"}
"""Attributes of a footnote's number within the text, in EPUB 3 and in DPUB-ARIA."""


class Tag(NamedTuple):
    """An element's beginning.

    Attributes:
        name: in lower case, without a prefix (``opf:item``), which every book chooses for itself.
        attributes: by their names, in lower case.
        text: up to the next beginning of an element, of a link up to its end.
    """

    name: str
    attributes: dict[str, str]
    text: str


class TagList(HTMLParser):
    """All beginnings of elements of a file, in order."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[Tag] = []
        self._link: int | None = None
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(tag.rpartition(":")[2], {name: value or "" for name, value in attrs}, ""))
        if tag == "a":
            self._link = len(self.tags) - 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._link = None

    def handle_data(self, data: str) -> None:
        if self.tags:
            place = len(self.tags) - 1 if self._link is None else self._link
            tag = self.tags[place]
            self.tags[place] = tag._replace(text=tag.text + data)


class PageBlock(NamedTuple):
    """A paragraph of a page.

    Attributes:
        text: without its line breaks; empty where only an anchor stands.
        heading: whether it is a heading of level 1 or 2.
        anchors: wanted ids of elements that begin with it, or shortly before.
    """

    text: str
    heading: bool
    anchors: tuple[str, ...]


class Page(HTMLParser):
    """The paragraphs of a page.

    Args:
        anchors: ids of elements that are wanted.
    """

    def __init__(self, content: str, anchors: Container[str] = ()) -> None:
        super().__init__()
        self.blocks: list[PageBlock] = []
        self._wanted = anchors
        self._anchors: list[str] = []
        self._text: list[str] = []
        self._heading = False
        self._silent: list[str] = []
        """Names of the silent element that is open, and of those in it."""
        self.feed(content)
        self.close()
        self._end_block()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if not _EMPTY.fullmatch(tag) and (self._silent or _is_silent(tag, attributes)):
            self._silent.append(tag)
            return
        if _BLOCKS.fullmatch(tag):
            self._end_block()
            self._heading = tag in HEADINGS
        if tag == "br":
            self._text.append("\n")
        # Links of older books lead to the name of an element ``a``.
        anchors = attributes.get("id"), attributes.get("name") if tag == "a" else None
        self._anchors += [anchor for anchor in anchors if anchor and anchor in self._wanted]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not _is_silent(tag, dict(attrs)):
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            while self._silent.pop() != tag:
                continue
        elif not self._silent and _BLOCKS.fullmatch(tag):
            self._end_block()

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._text.append(data.replace("\n", " "))

    def _end_block(self) -> None:
        lines = [" ".join(line.split()) for line in "".join(self._text).split("\n")]
        text = "\n".join(filter(None, lines))
        if text:
            self.blocks.append(PageBlock(text, self._heading, tuple(self._anchors)))
            self._anchors = []
        self._text, self._heading = [], False


def _is_silent(tag: str, attributes: dict[str, str | None]) -> bool:
    is_note = any(kind in (attributes.get(name) or "").split() for name, kind in _NOTES.items())
    is_hidden = "hidden" in attributes or bool(_HIDDEN.search(attributes.get("style") or ""))
    return is_note or is_hidden or bool(_SILENT.fullmatch(tag))
