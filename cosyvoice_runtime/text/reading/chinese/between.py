"""Marks between two numbers, and words around one."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.brackets import in_factor
from cosyvoice_runtime.text.reading.languages.language import Language
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place

RANGE = r"\s?(?:[–—]{1,2}|[-‑－~～])\s?"
"""This stands between the two ends of a range."""
NUMBER = r"(?:(?<![0-9])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|(?<![0-9])[0-9]+)(?:\.[0-9]+)?"
"""Source for a number without a sign."""
_COUNTS = re.compile(rf"\s?(?:{tables.COUNTS})")
_NO_COUNTS = re.compile(r"\s?(?:分之|次方|维|进制|年级|单元|号|楼)")
_NAMES = re.compile(r"(?:第|初|老|[A-Za-z]|[A-Za-z]-|[座栋幢楼号层·])\s?\Z")
_MEASURES = re.compile(
    rf"\s?(?:{tables.COUNTS}|余|多|来|几|月|日|号|时|分|级|毫|里|吨|克拉|公顷|%|％|‰|℃|°|摄氏|华氏|"
    r"港|日元|欧元|英镑|人民币|卢比|韩元|块|角|人|众|码|寸|尺|环|集|线|座|章|卡|千卡|大卡|像素|帧|k|w|[Kk][gm]|[cm]m|ml|mL|GB|MB|Hz)"
)
_SCORES = re.compile(rf"\s?(?:{tables.WON})")
_TEAM_BEFORE = re.compile(rf"(?:{tables.TEAMS})\s?\Z")
_TEAM_AFTER = re.compile(rf"\s?(?:{tables.TEAMS})")
_SCORE_BEFORE = re.compile(
    r"(?:比分|大比分|总比分|点球|战平|战胜|击败|逆转|赛果|比赛结果|胜|负|平|领先|落后|(?<![所可])以)[是为定格在：:了]{0,4}\s?\Z"
)


_PAIR = re.compile("([0-9]{1,3})-([0-9]{1,3})")
_RESULTS_BEFORE = re.compile(r"(?<![0-9-])(?:[0-9]{1,3}-[0-9]{1,3}[、，,]\s?){1,4}\Z")
_RESULTS_AFTER = re.compile(r"(?:[、，,]\s?[0-9]{1,3}-[0-9]{1,3}(?![0-9-])){1,4}")


def counts(place: Place, end: int) -> bool:
    """Whether the number that begins at the place and ends at ``end`` counts what follows it."""
    return bool(
        _COUNTS.match(place.text, end)
        and not _NO_COUNTS.match(place.text, end)
        and not _NAMES.search(place.before)
    )


def is_measured(text: str, end: int) -> bool:
    """Whether a unit, a measure word or more of a number follows."""
    return bool(_MEASURES.match(text, end))


def is_score(place: Place, end: int) -> bool:
    """Whether words around two numbers say that they are the result of a match."""
    if _SCORES.match(place.text, end) or _SCORE_BEFORE.search(place.before):
        return True
    if is_measured(place.text, end):
        return False
    if _is_among_results(place, end):
        return True
    return bool(_TEAM_BEFORE.search(place.before) or _TEAM_AFTER.match(place.text, end))


def _is_among_results(place: Place, end: int) -> bool:
    """Whether other pairs stand beside, of which one falls, as none of ranges does: ``11-9、8-11``."""
    before, after = _RESULTS_BEFORE.search(place.before), _RESULTS_AFTER.match(place.text, end)
    pairs = _PAIR.findall((before[0] if before else "") + place.text[place.start : end])
    pairs += _PAIR.findall(after[0] if after else "")
    return len(pairs) > 1 and any(int(one) > int(other) for one, other in pairs)


def parsed(written: str, language: Language) -> Numeral:
    """A number that :data:`NUMBER` found, with a sign or without."""
    return language.numerals.parse(written.replace("－", "-"))


def worded(numeral: Numeral, counted: bool, language: Language, ordinal: bool = False) -> str:
    """A number in words; two is 两 where it counts something, and never in an ordinal."""
    if counted and numeral == Numeral("2"):
        return "两"
    words = language.number(numeral)
    return f"二{words[1:]}" if ordinal and words.startswith("两") else words


def times(numeral: Numeral, zeros: int) -> str:
    """The digits of a number with its mark moved: 1.5 and 6 zeros are 1500000."""
    return f"{numeral.whole}{(numeral.fraction or '')[:zeros].ljust(zeros, '0')}".lstrip("0") or "0"


_TERM = rf"[(（]{{0,2}}{NUMBER}%?[)）]{{0,2}}"
_EQUATION = re.compile(rf"{_TERM}(?:\s?[-+×÷*/−]\s?{_TERM}){{1,8}}\s?[=≈]")
_LAST_TERMS = re.compile(rf"{_TERM}(?:\s?[-+×÷*/−]\s?{_TERM}){{0,8}}\s?[=≈]")
_AFTER_EQUALS = re.compile(r"[=≈]\s?(?:[0-9.]+\s?[-+×÷*/−]\s?){0,3}\Z")
_MORE_TERMS = re.compile(rf"{NUMBER}\s?[-+×÷*/−]\s?[0-9]")


def goes_on_to_equals(text: str, start: int) -> bool:
    """Whether one term or several stand from a place on, and then an equals sign."""
    return bool(_LAST_TERMS.match(text, start))


def begins_equation(place: Place) -> bool:
    """Whether terms and an equals sign follow from the place on."""
    return bool(_EQUATION.match(place.text, place.start))


def in_equation(place: Place) -> bool:
    """Whether the number at the place is a term of an equation, where signs are not those of ranges."""
    return bool(
        _EQUATION.match(place.text, place.start)
        or in_factor(place)
        or (_AFTER_EQUALS.search(place.before) and _MORE_TERMS.match(place.text, place.start))
    )
