"""Sums, products, integrals and limits: ``∑ i=1 ^n i``, ``∫₀^1 x² d x``, ``lim x → 0``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages.chinese import CHINESE
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_LOW = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_HIGH = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ", "0123456789n")
_TERM = r"[-−+]?\(?(?:[0-9]{1,4}|[a-zA-Zπ]|∞)\)?"
_SUM = re.compile(
    rf"(?P<sign>[∑∏]) ?_?\{{?(?P<of>[a-z]) ?= ?(?P<low>{_TERM})\}}? ?\^\{{?(?P<high>{_TERM})\}}? ?"
)
_INTEGRAL = re.compile(
    rf"∫ ?_?\{{?(?P<low>[₀-₉]{{1,3}}|{_TERM})\}}?"
    rf"(?: ?\^\{{?(?P<high>{_TERM})\}}?|(?P<raised>[⁰¹²³⁴-⁹ⁿ]{{1,3}})) ?"
)
_LIMIT = re.compile(
    rf"(?<![A-Za-z])lim[ _]?[({{]? ?(?P<of>[a-z]) ?(?:→|到|趋于) ?(?P<to>{_TERM})[)}}]?(?![A-Za-z0-9]) ?"
)
_WORDS = {"∑": "求和", "∏": "连乘", "∫": "积分"}
_FIRST = "∑∏∫l"


def read(place: Place) -> ReadForm | None:
    """A sign of calculus with its bounds."""
    sign = place.text[place.start]
    if sign not in _FIRST:
        return None
    if found := place.match(_SUM):
        bounds = f"{found['of']}从{_bound(found['low'])}到{_bound(found['high'])}"
        return ReadForm(found.end(), f"{_WORDS[sign]}，{bounds}，")
    if found := place.match(_INTEGRAL):
        high = found["high"] or found["raised"].translate(_HIGH)
        return ReadForm(found.end(), f"从{_bound(found['low'])}到{_bound(high)}积分，")
    if found := place.match(_LIMIT):
        return ReadForm(found.end(), f"{found['of']}趋于{_bound(found['to'])}的极限，")
    return ReadForm(place.start + 1, _WORDS[sign]) if sign in _WORDS else None


def _bound(written: str) -> str:
    """A bound in words: a number, a letter or infinity, with its sign."""
    plain = written.translate(_LOW).replace("(", "").replace(")", "")
    sign = {"-": "负", "−": "负", "+": "正"}.get(plain[0], "")
    plain = plain.lstrip("-−+")
    if plain == "∞":
        return f"{sign}无穷大"
    return sign + (CHINESE.cardinal(plain) if plain.isdecimal() else plain)
