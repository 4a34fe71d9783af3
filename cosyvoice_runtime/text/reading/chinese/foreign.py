"""English forms in Chinese sentences: ``BBC 6 Minute English``, ``1990s``, ``F♯``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import NUMBER, parsed
from cosyvoice_runtime.text.reading.languages.chinese_tables import ENGLISH_COUNTED, MODELS
from cosyvoice_runtime.text.reading.languages.english import ENGLISH
from cosyvoice_runtime.text.reading.languages.numeral import value_of_roman
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_WORD = r"[A-Za-z][a-z’']+"
_COUNTED = re.compile(rf"{NUMBER}(?=[ -](?:{ENGLISH_COUNTED})(?![A-Za-z]))")
_TITLE = re.compile(
    rf"{NUMBER}(?=:? (?!{MODELS})(?:[A-Z][a-z]{{2,}}|A|An|The)(?: (?!{MODELS}){_WORD}){{1,8}}"
    rf"|:? [A-Z][a-z]{{2,}}[》”\"」])"
)
_TITLE_BEFORE = re.compile('(?:^|[一-鿿《“"「：:，、。（(])\\s?\\Z')
_NO_TITLE = re.compile("第\\s?\\Z")
_PHRASE = re.compile(rf"{NUMBER}(?= {_WORD})")
_PHRASE_BEFORE = re.compile(
    r"(?<![A-Za-z])(?:The|[Tt]hese|[Mm]y|[Yy]our|[Oo]ur|"
    r"Top|First|Last|[Ee]very|[Ff]or|[Ii]n|[Oo]f|[Tt]o|[Ww]ith|[Aa]nd) \Z"
)
_DAY = re.compile(r"([12]?[0-9]|3[01])(?:st|nd|rd|th)?(?:, ((?:18|19|20)[0-9]{2}))?(?![0-9A-Za-z:])")
_MONTH_BEFORE = re.compile(
    r"(?<![A-Za-z])(?:January|February|March|April|May|June|July|August|"
    r"September|October|November|December) \Z"
)
_NOTE = re.compile("(?<![A-Za-z])([A-G])(♯|♭|#(?=m?(?![A-Za-z0-9])\\s?(?:[大小]调|和弦|调|音)))")

_DECADE = re.compile(r"(?<![0-9A-Za-z.])(1[89][0-9]0|20[0-2]0)s(?![A-Za-z0-9])\s?(?:年代)?")
_LASTS = re.compile(r"时(?:间|长)?[是为约了：:]{0,2}\s?\Z")
_STATUS = re.compile(
    r"([1-5][0-9]{2})(?= (?:Too Many|Not |Forbidden|Unauthorized|Bad |Internal |OK(?![A-Za-z])|"
    r"Created|Moved |"
    r"Found(?![a-z])|Service |Gateway |Method |Conflict|Gone(?![a-z])|Unprocessable|No Content|Payload))"
)
_EPISODE = re.compile(r"(?<![A-Za-z0-9])S0?([0-9]{1,2})\s?E0?([0-9]{1,3})(?![A-Za-z0-9])")
_DEGREE = "(?:I{1,3}|IV|VI{0,2}|i{1,3}|iv|vi{0,2})"
_PROGRESSION = re.compile(rf"(?<![A-Za-z–-]){_DEGREE}(?:[–-]{_DEGREE}){{2,7}}(?![A-Za-z–-])")


def read(place: Place) -> ReadForm | None:
    """A number in English, a decade, or a note that is raised or lowered."""
    if found := place.match(_NOTE):
        return ReadForm(found.end(), ("降" if found[2] == "♭" else "升") + found[1])
    if found := place.match(_EPISODE):
        season, episode = map(place.language.cardinal, found.groups())
        return ReadForm(found.end(), f"第{season}季第{episode}集")
    if found := place.match(_PROGRESSION):
        degrees = map(value_of_roman, re.split("[–-]", found[0].upper()))
        return ReadForm(found.end(), "".join(place.language.cardinal(str(degree)) for degree in degrees))
    if (found := place.match(_DECADE)) and not _LASTS.search(place.before):
        return ReadForm(found.end(), f"{place.language.digits(found[1])}年代")
    if not place.text[place.start].isdecimal() or _NO_TITLE.search(place.before):
        return None
    if found := place.match(_STATUS):
        return ReadForm(found.end(), place.language.digits(found[1]))
    if (found := place.match(_DAY)) and _MONTH_BEFORE.search(place.before):
        year = f", {ENGLISH.year(int(found[2]))}" if found[2] else ""
        return ReadForm(found.end(), ENGLISH.ordinal(int(found[1])) + year)
    found = place.match(_COUNTED)
    if not found and _TITLE_BEFORE.search(place.before):
        found = place.match(_TITLE)
    if not found and _PHRASE_BEFORE.search(place.before):
        found = place.match(_PHRASE)
    if not found:
        return None
    is_year = len(found[0]) == 4 and found[0][:2] in ("18", "19", "20")
    words = ENGLISH.year(int(found[0])) if is_year else ENGLISH.number(parsed(found[0], ENGLISH))
    return ReadForm(found.end(), words)
