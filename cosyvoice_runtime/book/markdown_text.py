"""Chapters and paragraphs of a book in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from cosyvoice_runtime.book.chapters import Book, ChapterList
from cosyvoice_runtime.book.pages import Page

CHAPTER_LEVELS = ("h1", "h2")
SILENT = ("fence", "code_block")
"""Blocks that are not read aloud."""
_FRONT_MATTER = re.compile(r"---\n((?:(?:\w[\w.-]*:[^\n]*|[ \t#-][^\n]*)?\n)*?)---\n")
"""Matches fields with their lists, remarks and empty lines, but no prose between two rules."""


def book_of_markdown(text: str) -> Book:
    """The book in a Markdown text; fields ``title`` and ``author`` of its front matter are its own.

    A heading of level 1 or 2 begins a chapter; others are paragraphs. Code is left out, and HTML is read
    without its tags. Lists, quotations and tables keep their marks, which the text front end reads.
    """
    fields, text = _fields_and_text(text)
    chapters = ChapterList()
    for begins, block in _blocks(text):
        if begins:
            chapters.begin(block)
        chapters.add(block)
    return Book(fields.get("title", ""), fields.get("author", ""), chapters.all())


def _fields_and_text(text: str) -> tuple[dict[str, str], str]:
    """Lines ``name: value`` between two of ``---`` at a text's beginning, and the rest of the text."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, text
    pairs = (line.partition(":") for line in found[1].splitlines())
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}, text[found.end() :]


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Whether a block begins a chapter, and its text."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    lines = text.split("\n")
    for number, token in enumerate(tokens):
        if token.level or not token.map or token.type in SILENT:
            continue
        if token.type == "heading_open":
            title = " ".join(_words(tokens[number + 1]).split())
            yield bool(title) and token.tag in CHAPTER_LEVELS, title
        elif token.type == "html_block":
            yield from ((block.heading, block.text) for block in Page(token.content).blocks)
        elif token.type == "paragraph_open":
            yield False, _words(tokens[number + 1])
        else:
            yield False, "\n".join(lines[slice(*token.map)]).strip()


def _words(inline: Token) -> str:
    """The text of a heading or a paragraph without marks of emphasis and targets of links."""
    children = inline.children or []
    return "".join("\n" if child.type.endswith("break") else child.content for child in children)
