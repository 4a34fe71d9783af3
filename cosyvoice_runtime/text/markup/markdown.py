"""The words of one link, image or table, as Markdown's own parser finds them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


@cache
def _parser() -> MarkdownIt:
    """The parser, imported with the first link or table: that takes 30 ms."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"maxNesting": 20}).enable("table")


def link_words(source: str) -> str | None:
    """The words of a link or the alternative text of an image; None where the parser finds neither."""
    tokens = _parser().parseInline(source)[0].children or []
    if len(tokens) == 1 and tokens[0].type == "image":
        return tokens[0].content
    if not tokens or tokens[0].type != "link_open" or tokens[-1].type != "link_close":
        return None
    return "".join(map(_words, tokens))


def table_rows(source: str) -> list[list[str]] | None:
    """The cells of each row of a table, still marked up, the header first; None where there is no table."""
    tokens = _parser().parse(source)
    if not tokens or tokens[0].type != "table_open":
        return None
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append(token.content)
    return rows


def _words(token: Token) -> str:
    if token.type == "code_inline":
        return f"`{token.content}`"
    return token.content if token.type in ("text", "text_special", "image") else ""
