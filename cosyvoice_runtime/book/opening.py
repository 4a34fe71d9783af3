"""Books read from their files, by the files' suffixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cosyvoice_runtime.book.chapters import Book
from cosyvoice_runtime.book.epub import read_epub
from cosyvoice_runtime.book.markdown_text import book_of_markdown
from cosyvoice_runtime.book.plain_text import chapters_of_text
from cosyvoice_runtime.errors import InvalidInput

MOST_TEXT_BYTES = 32 << 20
"""Bytes of a text; the longest novels have some ten million characters."""
MOST_EPUB_BYTES = 512 << 20
"""Bytes of an EPUB, pictures included, which are never unpacked."""


def read_book(path: Path) -> Book:
    """Read a book from ``.txt``, ``.md`` or ``.epub``; without a title it has its file's name.

    Raises:
        InvalidInput: another suffix, too large, no UTF-8, damaged or without any text.
        OSError: it can't be read.
    """
    if path.suffix.lower() not in READERS:
        raise InvalidInput("book", str(path), f"expected a name ending in one of {', '.join(READERS)}")
    book = READERS[path.suffix.lower()](path)
    if not book.chapters:
        raise InvalidInput("book", str(path), "it holds no text")
    return replace(book, title=book.title or path.stem)


def _plain(path: Path) -> Book:
    return Book("", "", chapters_of_text(_text(path)))


def _markdown(path: Path) -> Book:
    return book_of_markdown(_text(path))


def _epub(path: Path) -> Book:
    _check_size(path, MOST_EPUB_BYTES)
    return read_epub(path)


READERS: dict[str, Callable[[Path], Book]] = {
    ".txt": _plain,
    ".md": _markdown,
    ".markdown": _markdown,
    ".epub": _epub,
}


def _text(path: Path) -> str:
    """The file's text, its lines ended by line feeds alone."""
    _check_size(path, MOST_TEXT_BYTES)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("book", str(path), f"UTF-8 is expected, and byte {error.start} is none") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_size(path: Path, most: int) -> None:
    size = path.stat().st_size
    if size > most:
        raise InvalidInput("book", str(path), f"it has {size} bytes, and {most} are the most")
