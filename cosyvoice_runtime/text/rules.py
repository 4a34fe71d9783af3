"""Rules that rewrite parts of a text one after another, and characters in their plain forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

_WIDE = "％￥＄＋＝／＠＆＃～㎞㎏㎎㎝㎜㎖№" + "".join(
    chr(code) for first, last in ("０９", "ＡＺ", "ａｚ") for code in range(ord(first), ord(last) + 1)
)
_PLAIN = str.maketrans(
    {wide: unicodedata.normalize("NFKC", wide) for wide in _WIDE} | {"㎡": "m²", "㎥": "m³", "№": "No."}
)
_ALPHABETS_OF_MATHEMATICS = re.compile("[\U0001d400-\U0001d7ff]")
_GROUP_SPACE = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_POWER = re.compile("(?<=[0-9])[⁰¹²³⁴-⁹]+|(?<=(?<![A-Za-z])[A-Za-z])[⁰¹⁴-⁹]+")
_FRACTION = re.compile(r"(?:([0-9])\s?)?([¼-¾⅐-⅞])")
_WIDE_GROUPS = re.compile("(?<![0-9])(?<![0-9]，)[0-9]{1,3}(?:，[0-9]{3})*，000(?!，?[0-9])")
CIRCLED = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"
"""1 to 20."""
_ROMAN = "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩⅪⅫ"
_TO_TEN = "一二三四五六七八九十"
_NUMERALS = [*_TO_TEN, *(f"十{digit}" for digit in _TO_TEN[:9]), "二十"]
EAST_ASIAN_NUMERALS = str.maketrans(
    {sign: _NUMERALS[place] for signs in (CIRCLED, _ROMAN) for place, sign in enumerate(signs)}
    | {"\N{FRACTION SLASH}": "/"}
)
"""Circled and Roman numbers in Chinese or Japanese ones, and one sign of fractions for both."""


def plain(text: str, group: str = ",") -> str:
    """The text with characters of one width: ``１２：３０`` -> ``12:30``, ``2½`` -> ``2 1/2``.

    Marks between words keep their width, since sentences are told by them.

    Args:
        text: as it is written.
        group: what a narrow space between groups of digits becomes.
    """
    text = _ALPHABETS_OF_MATHEMATICS.sub(_compatible, text.translate(_PLAIN))
    text = re.sub(" {3,}", " ", _SPACE.sub(" ", _GROUP_SPACE.sub(group, text)))
    text = _FRACTION.sub(_fraction, _POWER.sub(lambda match: "^" + _compatible(match), text))
    # Only thousands: other numbers with wide commas between them are a list.
    text = _WIDE_GROUPS.sub(_compatible, text)
    return re.sub("(?<=[0-9])[：．](?=[0-9])", _compatible, text)


def _compatible(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0])


def _fraction(match: re.Match[str]) -> str:
    parts = unicodedata.normalize("NFKC", match[2]).replace("\N{FRACTION SLASH}", "/")
    return f"{match[1]} {parts}" if match[1] else parts


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
