"""Rules that rewrite parts of a text, one after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Read = Callable[[str], str]
"""Reads one expression in words."""

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
"""What is looked for, and what takes its place."""


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
