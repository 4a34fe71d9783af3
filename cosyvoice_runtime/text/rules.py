"""Rules that rewrite parts of a text, one after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Read = Callable[[str], str]
"""Reads one expression in words."""

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
"""A pattern, and its replacement."""


def rule(pattern: str, replacement: Callable[[re.Match[str]], str] | str) -> Rule:
    """A rule; a plain replacement may name groups as ``re.sub`` has them (``\\1``)."""
    if isinstance(replacement, str):
        template = replacement
        return re.compile(pattern), lambda match: match.expand(template)
    return re.compile(pattern), replacement


def apply(rules: Iterable[Rule], text: str) -> str:
    """The text with every rule applied in order."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def read_by_clause(clause: re.Pattern[str], text: str, read: Read) -> str:
    """The text with its clauses that hold a digit read, the spaces around their words apart."""

    def words_of(match: re.Match[str]) -> str:
        if not re.search("[0-9]", match[0]):
            return match[0]
        words = match[0].strip(" ")
        before, after = match[0].split(words, 1)
        return before + read(words) + after

    return clause.sub(words_of, text)
