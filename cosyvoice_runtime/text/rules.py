"""Characters of a text in their plain forms, and what reads a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_WIDE = "％￥＄＋＝／＠＆＃～㎞㎏㎎㎝㎜㎖№" + "".join(
    chr(code) for first, last in ("０９", "ＡＺ", "ａｚ") for code in range(ord(first), ord(last) + 1)
)
_PLAIN = str.maketrans(
    {wide: unicodedata.normalize("NFKC", wide) for wide in _WIDE}
    | {"㎡": "m²", "㎥": "m³", "㎍": "µg", "㎛": "µm", "㏄": "cc", "㎐": "Hz", "№": "No."}
)
_ALPHABETS_OF_MATHEMATICS = re.compile("[\U0001d400-\U0001d7ff]")
_GROUP_SPACE = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_SPACES = re.compile(" {3,}")
_POWER = re.compile("(?<=[0-9])[⁰¹²³⁴-⁹]+|(?<=(?<![A-Za-z])[A-Za-z])[⁰¹⁴-⁹]+")
_RAISED = dict(zip("ᵃᵇᶜᵈᵉᵏᵐⁿᵖʳˢᵗˣʸᶻⁱ⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "abcdekmnprstxyzi0123456789+-", strict=True))
_RAISED_LETTERS = re.compile(
    "(?:(?<=(?<![A-Za-z])[a-zA-Z])|(?<=[0-9])(?=[⁰-⁹⁻]*[ᵏⁿᵐᵗˣ])|(?<=[)\\]]))"
    "[⁰¹²³⁴-⁹⁻]*[ᵃᵇᶜᵈᵉᵏᵐⁿᵖʳˢᵗˣʸᶻⁱ](?![ᵃᵇᶜᵈᵉᵏᵐⁿᵖʳˢᵗˣʸᶻⁱ])(?:[⁺⁻][ᵃᵇᶜᵈᵉᵏᵐⁿᵖʳˢᵗˣʸᶻⁱ⁰¹²³⁴-⁹]{1,3})?"
)
_MICRO = re.compile("(?<=[0-9])( ?)μ(?=[gmslLAFV])")
_ISOTOPE = re.compile(r"(?<![0-9A-Za-z)\]⁰¹²³⁴-⁹⁻⁺])[⁰¹²³⁴-⁹]+(?=[A-Z])")
_BASE = re.compile("(?<=[0-9][0-9])(?:₂|₈|₁₀|₁₆)(?![₀-₉])")
_BELOW_LINE = re.compile("[₀-₉]+(?=([0-9])?)")
_FRACTION = re.compile(r"(?:([0-9]|(?<![A-Za-z])[A-Za-z](?! ))\s?)?([¼-¾⅐-⅞])")
_WIDE_MARK = re.compile(r"[A-Z][A-Za-z]{1,20} [0-9]{1,3}：|(?<=[0-9])[：．](?=[0-9])(?![12][0-9]{3}\s?年)")
_WIDE_GROUPS = re.compile("(?<![0-9])(?<![0-9]，)[0-9]{1,3}(?:，[0-9]{3})*，000(?!，?[0-9])")


def plain(text: str, group: str = ",") -> str:
    """The text with plain characters: ``１２：３０`` -> ``12:30``, ``2½`` -> ``2 1/2``, ``H₂O`` -> ``H2O``.

    Marks between words keep their width, since sentences are told by them.

    Args:
        text: as it is written.
        group: what a narrow space between groups of digits becomes.
    """
    if text.isascii():  # It has none of the characters that follow.
        return _SPACES.sub(" ", text)
    text = _ALPHABETS_OF_MATHEMATICS.sub(_compatible, text.translate(_PLAIN))
    text = _SPACES.sub(" ", _SPACE.sub(" ", _GROUP_SPACE.sub(group, text)))
    text = _RAISED_LETTERS.sub(_raised, text)
    text = _MICRO.sub(r"\1µ", text)
    text = _ISOTOPE.sub(_compatible, text)
    text = _BASE.sub(lambda match: "_" + _compatible(match), text)
    text = _BELOW_LINE.sub(lambda match: _compatible(match) + (" " if match[1] else ""), text)
    text = _FRACTION.sub(_fraction, _POWER.sub(lambda match: "^" + _compatible(match), text))
    # Only thousands: other numbers with wide commas between them are a list.
    text = _WIDE_GROUPS.sub(_compatible, text)
    return _WIDE_MARK.sub(lambda match: match[0] if match[0][1:] else _compatible(match), text)


def _raised(match: re.Match[str]) -> str:
    """``xⁿ⁺¹`` -> ``x^(n+1)``."""
    plain = "".join(_RAISED[sign] for sign in match[0])
    return f"^{plain}" if len(plain) == 1 else f"^({plain})"


def _compatible(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0])


def _fraction(match: re.Match[str]) -> str:
    parts = unicodedata.normalize("NFKC", match[2]).replace("\N{FRACTION SLASH}", "/")
    return f"{match[1]} {parts}" if match[1] else parts


Read = Callable[[str], str]
"""Reads one expression in words."""
