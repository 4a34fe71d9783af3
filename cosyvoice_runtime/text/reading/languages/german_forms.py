"""Forms that only German has: rulers, weekdays in short, clock-like durations, and what governs a date."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.language import alternatives
from cosyvoice_runtime.text.reading.languages.numeral import value_of_roman
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.european import European

WEEKDAYS = {
    "Mo": "Montag", "Di": "Dienstag", "Mi": "Mittwoch", "Do": "Donnerstag", "Fr": "Freitag", "Sa": "Samstag",
    "So": "Sonntag",
}  # fmt: skip
_DAY = alternatives(WEEKDAYS)
_SHORT_DAY = re.compile(
    rf"(?<![\w.-])({_DAY})(?:\.?\s?[-–]\s?({_DAY})(?![a-zäöü])\.?|"
    rf"\.?(?=,? (?:den )?[0-9]{{1,2}}[.:][ 0-9])|"
    rf"(?=:? (?:geschlossen|Ruhetag|zu\b))|\.(?= (?:und|bis) {_DAY}\b))"
)
_LASTING = re.compile(
    r"(?<![\w.,:/-])([0-9]{1,3}):([0-5][0-9])(?::([0-5][0-9]))?"
    r"[ -](Stunden|Std\.?|Minuten|Min\.?|min\b)(?:-(?=[A-Z]))?"
)
_RULER = re.compile(r"([IVX]{1,5})\.(?= (\w+)|[,;)])")
_BEFORE_WEEKDAY = re.compile(rf"(\w+) (?:{alternatives(WEEKDAYS.values())}|{_DAY}\.?),? \Z")
_BEFORE_CHAIN = re.compile(
    r"(\w+) [0-9]{1,2}\.(?:\s?[0-9]{1,2}\.|[0-9]{1,2}\.| [A-Z]\w+)?"
    r"(?:, [0-9]{1,2}\.)? (?:und|oder|sowie|bis zum) \Z"
)
_STREET = re.compile(r"(?<!\w)([A-ZÄÖÜ][\w-]*[a-zäöüß])str\.(?= ?[0-9])")
_WHOLE = re.compile(r"(?<![\w.,])([0-9]{1,3}(?:\.[0-9]{3})*|[0-9]{1,6}),[-–—]{1,2} ?(€|EUR|Euro|CHF|Fr\.)")
_FIRST_HOUR = re.compile(r"(?<![\w.,:])([01]?[0-9]|2[0-3]) ?[–-] ?(?=[0-9]{1,2}[:.][0-5][0-9] ?(?:Uhr|h\b))")
_TIMES = re.compile(r"(?<![\w.,])([0-9]{1,3}) ?[x×] (?=[A-ZÄÖÜ][a-zäöü])")
_NOUN = re.compile(r" ([A-ZÄÖÜ][a-zäöüß]+)")
_DATIVE = re.compile(
    r"\b(?i:nach|vor|seit|mit|aus|bei|zu|in|von|binnen|innerhalb von|ab|außer|gegenüber) "
    r"(?:etwa |ca\. |nur |je |rund |genau |mindestens |höchstens |fast )?"
    r"(?:[0-9]{1,4} [A-Z]\w{1,20} und )?\Z"
)
_ACCUSATIVE = re.compile(
    r"\b(?i:habe|hat|haben|hatte|hatten|hast|brauch\w*|kauf\w*|kost\w*|wieg\w*|dauer\w*|nimm|nehmen|nehme|gib|geben|gibt|"
    r"bekomm\w*|erhält|erhalten|für|um|ohne|gegen|durch|pro|bezahl\w*|zahl\w*|füg\w*|enthält|besitzt|esse|isst|trink\w*|"
    r"jeweils) (?:etwa |ca\. |nur |noch |genau |je |mich |dich |Sie |ich |er |sie |wir )?"
    r"(?:[0-9]{1,4} [A-Z]\w{1,20}(?: und |, ))?\Z"
)


def governor(place: Place) -> str:
    """The word that an ordinal or a date agrees with, before a weekday or another day, in small letters."""
    before = place.before
    found = _BEFORE_WEEKDAY.search(before) or _BEFORE_CHAIN.search(before)
    return found[1].lower() if found else place.word_before


def short_weekday(place: Place, language: European) -> ReadForm | None:
    """``Mo–Fr``, ``Do., 21.11.``."""
    found = place.match(_SHORT_DAY)
    if not found:
        return None
    first = WEEKDAYS[found[1]]
    return ReadForm(found.end(), f"{first} {language.to} {WEEKDAYS[found[2]]}" if found[2] else first)


def lasting(place: Place, language: European) -> ReadForm | None:
    """``2:15 Stunden``, ``3:25 Min.``."""
    found = place.match(_LASTING)
    if not found:
        return None
    units = ("h", "min", "s") if found[3] or found[4].startswith("S") else ("min", "s")
    counts = [count for count in found.groups()[:3] if count]
    words = [
        language.counted(language.numerals.parse(count), language.units[unit])
        for count, unit in zip(counts, units, strict=False)
        if int(count)
    ]
    return ReadForm(found.end(), " ".join(words)) if words else None


def ruler(place: Place, language: European) -> ReadForm | None:
    """``Ludwig II.`` inside a sentence."""
    found = place.match(_RULER)
    if not found or place.word_before not in tables.RULERS or found[2] in tables.SENTENCE_STARTS:
        return None
    value = value_of_roman(found[1])
    article = "die" if place.word_before in tables.QUEENS else "der"
    return ReadForm(found.end(), f"{article} {language.ordinal(value).removesuffix('r')}")


def street(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Goethestr. 5``."""
    found = place.match(_STREET)
    return ReadForm(found.end(), f"{found[1]}straße") if found else None


def whole_euros(place: Place, language: European) -> ReadForm | None:
    """``24,– €``."""
    found = place.match(_WHOLE)
    if not found:
        return None
    numeral = language.numerals.parse(found[1])
    return ReadForm(found.end(), language.money(numeral, language.currencies[found[2]]))


def first_hour(place: Place, language: European) -> ReadForm | None:
    """``10–11:30 Uhr``: the first hour has no minutes."""
    found = place.match(_FIRST_HOUR)
    if not found:
        return None
    hour = "ein" if int(found[1]) == 1 else language.cardinal(str(int(found[1])))
    return ReadForm(found.end(), f"{hour} {language.to} ")


def times(place: Place, language: European) -> ReadForm | None:
    """``3 x Kaffee``."""
    found = place.match(_TIMES)
    return ReadForm(found.end(), f"{language.spell(int(found[1]), 'n')} mal") if found else None


def declined(form: ReadForm, place: Place) -> ReadForm:
    """``nach einem Jahr``, ``einen Bruder``: one in the case that the words before it ask for."""
    words, _, noun = form.words.partition(" ")
    if words.lower() not in ("ein", "eine"):
        return form
    if not noun:
        following = _NOUN.match(place.text, form.end)
        noun = following[1] if following else ""
    noun = noun.split(" ")[0]
    if not noun[:1].isupper() or noun == "Uhr":
        return form
    article = words
    if _DATIVE.search(place.before):
        article = "einer" if words == "eine" else "einem"
    elif words == "ein" and noun.lower() in tables.MASCULINE_COUNTED and _ACCUSATIVE.search(place.before):
        article = "einen"
    return ReadForm(form.end, article + form.words[len(words) :])


FORMS = (short_weekday, lasting, ruler, street, whole_euros, first_hour, times)
