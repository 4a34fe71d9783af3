"""Marks around numbers and names: ``①``, ``（1）``, ``.NET``, tags, blanks between two numbers."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages.numeral import CIRCLED
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_TAG = re.compile(r"</?[A-Za-z][^<>]{0,80}>")
_BRACKETS = "⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽⑾⑿⒀⒁⒂⒃⒄⒅⒆⒇"
_ROMAN = "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩⅪⅫ"
_BRACKETED = re.compile(r"[（(]\s?([0-9]{1,2})\s?[）)](?![ -]?[0-9]{3,4}-?[0-9]{4})")
_HALF_BRACKETED = re.compile(r"([0-9]{1,2})\s?[）)]")
_BEGINS = re.compile(r"(?:^|[\s，。！？；：、,;:.!?“”\"])\Z")
_MENTIONED = re.compile(f"[{CIRCLED}第图式见由将把和与及或、步题注项号点方法选]\\Z")
_GAP = re.compile(r"(?<=[0-9]) +(?=[0-9¥$€£])")
_WEEKDAY = re.compile(r"\s?[（(]([一二三四五六日])[）)]")
_DAY_BEFORE = re.compile(r"[0-9](?:日|号|/[0-9]{1,2})\Z")
_FIGURES = r"(?:[0-9≥≤<>≈约¥$€+−-]|公元|前[0-9]{2,4}\s?[年－—–-])"
_TO_ERA = re.compile(r"(?<=年)\s?(?:[–—]{1,2}|[-－~～])\s?(?=公元)")
_BRACKET = re.compile(rf"（(?![0-9]{{1,2}}）)(?={_FIGURES})|）(?=[0-9A-Za-z¥$€£\u4e00-\u9fff])")
_WORD_BEFORE = re.compile(rf"[0-9A-Za-z\u4e00-\u9fff%℃](?:（{_FIGURES}[^（）]*)?\Z")
_OF_LETTERS = re.compile(r"（(?=[A-Za-z])|）(?=[A-Za-z0-9])")
_LETTER_BEFORE = re.compile(r"[A-Za-z0-9]\Z")
_IN_BRACKET = re.compile(rf"（(?![0-9]{{1,2}}\Z){_FIGURES}[^（）]*\Z")
_CLOCK = re.compile(r"[0-9]{1,2}[:：][0-9]{2}")
_DOT_BEFORE_NAME = re.compile(
    r"(?<![0-9A-Za-z.])\.(?=[A-Za-z]{2,})|(?<=[0-9A-Za-z])\.(?=[a-z]{2,4}(?![A-Za-z]))"
    r"|(?<=[a-z][0-9])\.(?=[a-z]{5,10}(?![A-Za-z]))"
)
_ANY_VERSION = re.compile(r"(?<=[0-9])\.(?=[xX](?![A-Za-z0-9]))")
_DOT_AFTER_NAME = re.compile(r"(?<=[A-Za-z])\.\s?(?=[0-9])")
_ONE_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-oq-z]\Z")
_STROKE = re.compile(r"(?<=[A-Za-z])/(?=[0-9])")
_OF_AMOUNTS = re.compile(r"(?<=[0-9][VAW])/[0-9.]+\s?(?:k?Ω|[VAW])\s?[=≈]")
_ABBREVIATED = re.compile(r"(?<![A-Za-z.])(?:vs|Dr|Mr|Mrs|Ms|Prof|St|Fig|Vol|Ch|Sec|Eq|approx)\Z")
_OF_UNIT = re.compile(r"(?:[0-9](?:[GMKT]i?B?|[A-Z])|°[CF])\Z")
_AT = re.compile(r"\s?@\s?(?=[0-9]+(?:\.[0-9]+)?\s?[A-Za-z])")
_NUMBER_SIGN = re.compile(r"(?<![A-Za-z])[Nn][Oo]\.? ?(?=[0-9])")


def read(place: Place) -> ReadForm | None:
    """A mark that is spoken, or that is no mark of a sentence."""
    sign = place.text[place.start]
    if sign == "<" and (found := place.match(_TAG)):
        return ReadForm(found.end(), found[0])
    if (found := place.match(_WEEKDAY)) and _DAY_BEFORE.search(place.before):
        return ReadForm(found.end(), f"星期{found[1]}")
    if found := place.match(_TO_ERA):
        return ReadForm(found.end(), place.language.to)
    if sign in CIRCLED:
        return _listed(place, CIRCLED.index(sign) + 1, place.start + 1)
    if sign in _BRACKETS:
        return _listed(place, _BRACKETS.index(sign) + 1, place.start + 1)
    if sign in _ROMAN:
        return ReadForm(place.start + 1, place.language.cardinal(str(_ROMAN.index(sign) + 1)))
    if sign in "（(" and (found := place.match(_BRACKETED)) and _BEGINS.search(place.before):
        return _listed(place, int(found[1]), found.end())
    if sign.isdecimal() and (found := place.match(_HALF_BRACKETED)) and _begins_item(place):
        return _listed(place, int(found[1]), found.end())
    is_of_letters = place.match(_OF_LETTERS) and _LETTER_BEFORE.search(place.before)
    if is_of_letters or (place.match(_BRACKET) and _is_apart(place)):
        return ReadForm(place.start + 1, place.language.pause)
    if sign in "Nn" and (found := place.match(_NUMBER_SIGN)):
        return ReadForm(found.end(), "第")
    if (found := place.match(_AT)) and _LETTER_BEFORE.search(place.before):
        return ReadForm(found.end(), place.language.pause)
    if sign == "/" and place.match(_STROKE) and not place.match(_OF_AMOUNTS):
        return ReadForm(place.start + 1, place.language.pause if _OF_UNIT.search(place.before) else "")
    if sign == ".":
        return _dot(place)
    if sign == " " and (found := place.match(_GAP)) and not _CLOCK.match(place.text, found.end()):
        return ReadForm(found.end(), place.language.pause)
    return None


def _is_apart(place: Place) -> bool:
    """Whether what brackets hold are figures that stand apart from the words before them."""
    if place.text[place.start] == "）" and not _IN_BRACKET.search(place.before):
        return False
    return bool(_WORD_BEFORE.search(place.before))


def _begins_item(place: Place) -> bool:
    """Whether a number before a closing bracket begins an item, since none opens before it."""
    opened = max(map(place.before.rfind, "(（"))
    return bool(_BEGINS.search(place.before)) and opened <= max(map(place.before.rfind, ")）"))


def _is_next_item(place: Place, number: int) -> bool:
    """Whether a circled number goes on with a list in one line: ``①米②面``."""
    sign = place.text[place.start]
    if number < 2 or sign not in CIRCLED or _MENTIONED.search(place.before):
        return False
    return CIRCLED[number - 2] in place.text[max(0, place.start - 150) : place.start]


def _listed(place: Place, number: int, end: int) -> ReadForm:
    """The number of an item, with a pause after it, or one that is mentioned."""
    words = place.language.cardinal(str(number))
    following = place.text[end : end + 1]
    if not following or following in "，。！？；：、,;:.!?)）":
        return ReadForm(end, words)
    if _BEGINS.search(place.before) or _is_next_item(place, number):
        before = (
            "" if not place.before.strip() or place.before.rstrip()[-1] in "，。！？；：、,;:.!?“" else "，"
        )
        return ReadForm(end, f"{before}{words}，")
    return ReadForm(end, words)


def _dot(place: Place) -> ReadForm | None:
    """A dot of a name: said before letters, silent after an abbreviation."""
    if found := place.match(_DOT_BEFORE_NAME) or place.match(_ANY_VERSION):
        return ReadForm(found.end(), place.language.point)
    if _ABBREVIATED.search(place.before) and place.text[place.start + 1 :].strip():
        return ReadForm(place.start + 1, "")
    found = place.match(_DOT_AFTER_NAME)
    if not found:
        return None
    if _ONE_LETTER.search(place.before):
        return ReadForm(found.end(), place.language.point)
    return ReadForm(found.end(), "")
