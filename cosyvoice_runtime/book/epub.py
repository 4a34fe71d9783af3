"""Books in EPUB 2 and 3 (https://www.w3.org/TR/epub-33): pages in order, and titles of the contents."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from cosyvoice_runtime.book.chapters import Book, Chapter, ChapterList
from cosyvoice_runtime.book.pages import Page, Tag, TagList
from cosyvoice_runtime.errors import InvalidInput

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
MOST_BYTES = 64 << 20
"""Bytes of all unpacked pages of a book; the longest novels have some ten million characters."""
PAGES = ("application/xhtml+xml", "text/html")
NCX = "application/x-dtbncx+xml"

_NUMBER = re.compile(r"\d+|[ivxlcdm]+")
"""Matches a number in digits or Roman letters."""
_HEADING = re.compile(r"[^\n]{0,60}[\w)\]]")
"""Matches a short line that ends with no mark, as no sentence does."""

Titles = Mapping[str, Mapping[str, str]]
"""Titles of the contents by page and by id within it; an empty id is the page's beginning."""


class Item(NamedTuple):
    """A file that the package's manifest lists."""

    path: str
    media_type: str
    properties: list[str]


def read_epub(path: Path) -> Book:
    """Read a book.

    Raises:
        InvalidInput: it is no EPUB, holds too much, or its pages are encrypted.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _EpubReader(path, archive).book()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise InvalidInput("book", str(path), f"it is no sound EPUB ({error})") from error


class _EpubReader:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._names = set(archive.namelist())
        self._left = MOST_BYTES

    def book(self) -> Book:
        package = self._package()
        tags = TagList(self._text(package)).tags
        items = _items(tags, posixpath.dirname(package))
        pages = self._spine(tags, items)
        self._refuse_encrypted(pages)
        chapters = self._chapters(pages, self._titles(tags, items))
        return Book(_told(tags, "title"), _told(tags, "creator"), chapters)

    def _package(self) -> str:
        roots = [tag.attributes.get("full-path", "") for tag in TagList(self._text(CONTAINER)).tags]
        found = next(filter(None, roots), None)
        if found is None:
            raise InvalidInput("book", str(self._path), f"its {CONTAINER} names no package")
        return found

    def _spine(self, tags: list[Tag], items: Mapping[str, Item]) -> list[str]:
        """Pages in reading order, without the contents and those outside of it (``linear="no"``)."""
        pages = []
        for tag in tags:
            if tag.name == "itemref" and tag.attributes.get("linear") != "no":
                item = items.get(tag.attributes.get("idref", ""))
                if item and item.media_type in PAGES and "nav" not in item.properties:
                    pages.append(item.path)
        return pages

    def _refuse_encrypted(self, pages: list[str]) -> None:
        """Fonts may be encrypted, pages not."""
        if ENCRYPTION in self._names:
            tags = TagList(self._text(ENCRYPTION)).tags
            hidden = {unquote(tag.attributes["uri"]) for tag in tags if "uri" in tag.attributes}
            if found := hidden.intersection(pages):
                raise InvalidInput("book", str(self._path), f"its page {min(found)} is encrypted")

    def _titles(self, tags: list[Tag], items: Mapping[str, Item]) -> Titles:
        """Titles of EPUB 3's ``nav``, else of EPUB 2's ``ncx``; of a place the first one."""
        toc = next((tag.attributes.get("toc", "") for tag in tags if tag.name == "spine"), "")
        lists = [item for item in items.values() if "nav" in item.properties]
        lists += [items[toc]] if toc in items else [each for each in items.values() if each.media_type == NCX]
        titles: dict[str, dict[str, str]] = defaultdict(dict)
        for item in lists:
            for target, title in _entries(TagList(self._text(item.path)).tags):
                page, _, anchor = target.partition("#")
                place = _joined(posixpath.dirname(item.path), page)
                titles[place].setdefault(unquote(anchor), " ".join(title.split()))
            if titles:
                break
        return titles

    def _chapters(self, pages: list[str], titles: Titles) -> list[Chapter]:
        """Chapters begin where the contents say, else with headings."""
        known = any(page in titles for page in pages)
        chapters = ChapterList()
        for name in pages:
            here = titles.get(name, {})
            waiting = here.get("")
            for block in Page(self._text(name), here).blocks:
                title = next((here[anchor] for anchor in block.anchors), None) or waiting
                waiting = None
                if not known and block.heading:
                    title = " ".join(block.text.split())
                if title:
                    chapters.begin(title)
                    if not _says(block.text, title):
                        chapters.add(title)
                chapters.add(block.text)
        return chapters.all()

    def _text(self, name: str) -> str:
        """A file of the book, unpacked as far as the limit goes, whatever size its header tells."""
        if name not in self._names:
            raise InvalidInput("book", str(self._path), f"its file {name} is missing")
        with self._archive.open(name) as file:
            content = file.read(self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            limit = f"its pages have more than {MOST_BYTES >> 20} MiB, which is the most"
            raise InvalidInput("book", str(self._path), limit)
        try:
            return content.decode("utf-16" if content[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8-sig")
        except UnicodeDecodeError as error:
            limit = f"its file {name} is no UTF-8 (byte {error.start})"
            raise InvalidInput("book", str(self._path), limit) from error


def _items(tags: list[Tag], folder: str) -> dict[str, Item]:
    """Files of the package's manifest by their ids."""
    return {
        tag.attributes.get("id", ""): Item(
            _joined(folder, tag.attributes.get("href", "")),
            tag.attributes.get("media-type", ""),
            tag.attributes.get("properties", "").split(),
        )
        for tag in tags
        if tag.name == "item"
    }


def _entries(tags: list[Tag]) -> Iterator[tuple[str, str]]:
    """Targets and titles of a list of contents: links of a ``nav``, labels and contents of an ``ncx``."""
    label = ""
    within = not any(tag.name == "nav" for tag in tags)
    for tag in tags:
        if tag.name == "nav":
            within = "toc" in tag.attributes.get("epub:type", "toc")
        elif tag.name == "text":
            label = tag.text
        elif tag.name == "content" and label:
            yield tag.attributes.get("src", ""), label
        elif tag.name == "a" and within and tag.text.strip():
            yield tag.attributes.get("href", ""), tag.text


def _told(tags: list[Tag], name: str) -> str:
    """The first value of the package's metadata under a name; empty without one."""
    return next((" ".join(tag.text.split()) for tag in tags if tag.name == name and tag.text.strip()), "")


def _joined(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(target)))


def _says(text: str, title: str) -> bool:
    """Whether a chapter's first paragraph is its title, a part of it, or holds it near its beginning.

    A number alone begins many a sentence ("I was born"), so that it has to begin a heading.
    """
    said, shown = ("".join(filter(str.isalnum, each)).casefold() for each in (text, title))
    is_heading = bool(_HEADING.fullmatch(text))
    if _NUMBER.fullmatch(shown) and said != shown:
        return is_heading and re.split(r"\W", text.casefold(), maxsplit=1)[0] == shown
    return bool(said) and (said in shown or shown in (said if is_heading else said[: 2 * len(shown)]))
