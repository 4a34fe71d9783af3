"""Forms that only German has: rulers, weekdays in short, clock-like durations, and what governs a date."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import german_answers, german_nouns, german_short
from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.european import listed
from cosyvoice_runtime.text.reading.languages.german_answers import WEEKDAYS
from cosyvoice_runtime.text.reading.languages.language import Clock, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import value_of_roman
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.european import European

_DAY = alternatives(WEEKDAYS)
_SHORT_DAY = re.compile(
    rf"(?<![\w.-])({_DAY})(?:\.?\s?[-–]\s?({_DAY})(?![a-zäöü])\.?|"
    rf"\.?:?(?=,? (?:de[rnm] )?[0-9]{{1,2}}(?:[.:][ 0-9]|[–-][0-9]| ?Uhr))|"
    rf"(?=:? -?[0-9]{{1,2}} ?°)|"
    rf"(?=:? (?:geschlossen|geschl\.|Ruhetag|zu\b))|\.(?=,? (?:und|bis|oder|&) (?:{_DAY}\b|Feiertag))|"
    rf"(?=, {_DAY}\b[.,]? ))"
)
_TWO_DAYS = re.compile(
    rf"(?<![\w.-])({_DAY})\.? ?(?:[/+&]| (und|oder|bis) ) ?({_DAY})(?:\.(?= [a-z0-9])|(?![\w.]))"
)
_ONE_DAY = re.compile(rf"(?<![\w.-])({_DAY})(?:\.|(?=[;:] ))")
_DAY_OF_LIST = re.compile(rf"(?<![\w.-])({_DAY})(?![\w-])(?P<dot>\.)?")
_DAYS_BEFORE = re.compile(rf"\b(?P<more>(?:{_DAY}), ?)?(?:{_DAY}|{alternatives(WEEKDAYS.values())}), ?\Z")
_DAY_OF_ROW = re.compile(rf"({_DAY})(?=, )")
_AFTER_BARE_ROW = re.compile(rf"(?:\A|[.\n]) ?{_DAY}\. \Z")
_DAY_OF_BARE_ROW = re.compile(rf"({_DAY})(?=\. {_DAY}[,.] )")
_ROW_BEGINS = re.compile(r"(?:\A|[.\n]) ?\Z")
_SURE = "(?:Mo|Di|Mi|Fr|Sa)"
_ROWS = re.compile(
    rf"(?:\A|[.\n]) ?(?:{_SURE}, (?s:.){{1,150}}?[.\n] ?{_DAY}|{_DAY}, (?s:.){{1,150}}?[.\n] ?{_SURE}), "
)
"""Two rows that begin with days, one of which is neither ``So`` nor ``Do``, as sentences may begin."""
_DAY_BEGINS = re.compile(r"(?:Mo|Di|Mi|Do|Sa)\.(?= [a-z])")
_BEFORE_DAY = re.compile(
    rf"\b(?:{_DAY}\.?|{alternatives(WEEKDAYS.values())}),? (?:und|bis|oder) \Z"
    r"|\b(?i:am|jeden|nächsten|diesen|kommenden|letzten|ab|bis|vom|seit|immer|für|einen|einem) \Z"
)
_BEGINS = re.compile(r"(?:\A|[.:\n]) ?\Z")
_LASTING = re.compile(
    r"(?<![\w.,:/-])([0-9]{1,3}):([0-5][0-9])(?::([0-5][0-9]))?"
    r"[ -](Stunden|Std\.?|Minuten|Min\.?|min\b)(?:-(?=[A-Z]))?(/km\b)?"
)

_BEFORE_WEEKDAY = re.compile(rf"(\w+) (?:{alternatives(WEEKDAYS.values())}|{_DAY}\.?)(,?) \Z")
_CHAIN = re.compile(
    r"(?:[0-9]{1,3}\.(?:\s?[0-9]{1,2}\.| [A-Z]\w+)?"
    r"(?:(?:,| und| u\.| oder| sowie| bis zum| bis| bzw\.) |[/–-])){1,5}\Z"
)
"""Ordinals and dates before one, which have the same governor."""
_RULER = re.compile(r"([IVX]{1,5})(?!\w)(?:\.(?= (\w+)|[,;:)]| \(|\Z))?")
_LAST_WORD = re.compile(r"(\w+) \Z")
_STREET = re.compile(r"(?<!\w)([A-ZÄÖÜ][\w-]*[a-zäöüß])str\.(?= ?[0-9])")
_WHOLE = re.compile(r"(?<![\w.,])([0-9]{1,3}(?:\.[0-9]{3})*|[0-9]{1,6}),[-–—]{1,2} ?(€|EUR|Euro|CHF|Fr\.)")
_FIRST_HOUR = re.compile(r"(?<![\w.,:])([01]?[0-9]|2[0-3]) ?[–-] ?(?=[0-9]{1,2}[:.][0-5][0-9] ?(?:Uhr|h\b))")
_FIRST_TIME = re.compile(
    r"(?<![\w.,:])(?P<hour>[01]?[0-9]|2[0-4])\.(?P<minute>[0-5][0-9]) ?(?P<to>[–-]|bis|und) ?"
    r"(?:(?P<last>[01]?[0-9]|2[0-4])(?:[:.](?P<rest>[0-5][0-9]))? ?(?:Uhr|h)\b)"
)
_TIMES = re.compile(
    r"(?<![\w.,])([0-9]{1,3}) ?[x×] (?=[A-ZÄÖÜ][a-zäöü]|t[gä]|jähr|am |pro |im |wöch|mon|die )"
)
_NOUN = re.compile(r" ([A-ZÄÖÜ][a-zäöüß]+)")


def without_chain(before: str) -> str:
    """The text before the first of some ordinals."""
    return _CHAIN.sub("", before)


def governor(place: Place) -> str:
    """The word that an ordinal or a date agrees with, before a weekday or another day, in small letters.

    A comma follows it where one stands after the weekday and the date needs an article of its own.
    """
    found = _BEFORE_WEEKDAY.search(place.before)
    if found:
        return found[1].lower() + (found[2] if found[1].lower() in _OF_DATIVE else "")
    before = without_chain(place.before)
    last = _LAST_WORD.search(before) if before != place.before else None
    return last[1].lower() if last else place.word_before


_OF_DATIVE = ("am", "vom", "zum")


def short_weekday(place: Place, language: European) -> ReadForm | None:
    """``Mo–Fr``, ``Do., 21.11.``, ``Sa/So``, ``am Fr. um neun``."""
    if found := place.match(_TWO_DAYS):
        return ReadForm(found.end(), f"{WEEKDAYS[found[1]]} {found[2] or 'und'} {WEEKDAYS[found[3]]}")
    if (bare := place.match(_DAY_OF_BARE_ROW)) and _ROW_BEGINS.search(place.before):
        return ReadForm(bare.end(), WEEKDAYS[bare[1]])
    found = place.match(_SHORT_DAY)
    if not found and (alone := _day_alone(place)):
        return ReadForm(alone.end(1), WEEKDAYS[alone[1]])
    if not found:
        found = place.match(_ONE_DAY)
        if found and place.match(_DAY_BEGINS):
            return ReadForm(found.end(), WEEKDAYS[found[1]])
        if not found or not (_BEFORE_DAY if found[0].endswith(".") else _BEGINS).search(place.before):
            return None
        ends = found[0].endswith(".") and not place.text[found.end() :].strip()
        return ReadForm(found.end() - ends, WEEKDAYS[found[1]])
    first = WEEKDAYS[found[1]]
    return ReadForm(found.end(), f"{first} {language.to} {WEEKDAYS[found[2]]}" if found[2] else first)


def _day_alone(place: Place) -> re.Match[str] | None:
    """``Sa, So frei``, and the days of a table whose rows are ``Mo, Sport. Di, Kunst.``"""
    if days := _DAYS_BEFORE.search(place.before):
        found = place.match(_DAY_OF_LIST)
        return found if found and (days["more"] or not found["dot"]) else None  # or it is Mrs. Fr.
    found = place.match(_DAY_OF_ROW)
    if not found or not _ROW_BEGINS.search(place.before):
        return None
    return found if _AFTER_BARE_ROW.search(place.before) or place.near(_ROWS) else None


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
    if words and found[5]:
        words.append(language.per("", language.per_units["km"]))
    return ReadForm(found.end(), " ".join(words)) if words else None


def ruler(place: Place, language: European) -> ReadForm | None:
    """``Ludwig II.``, ``unter Ludwig XIV.``, ``die Herrschaft Ludwigs XIV.``."""
    found = place.match(_RULER)
    if found and (words := _after_article(found, place, language)):
        return ReadForm(found.end(), words)
    name = place.word_before
    if not found or not (name in tables.RULERS or name.removesuffix("s") in tables.RULERS):
        return None
    value = value_of_roman(found[1])
    if not value or (found[0] in ("I", "V", "X") and name not in tables.RULERS | {"karls"}):
        return None
    is_owner = name not in tables.RULERS or place.before.endswith(("' ", "’ "))
    case = "genitive" if is_owner else _case_of_name(place.text[max(0, place.start - _NAMES) : place.start])
    articles = _ARTICLES["f" if name.removesuffix("s") in tables.QUEENS else "m"]
    end = found.end() - (found[0].endswith(".") and found[2] in tables.SENTENCE_STARTS)
    stem = language.ordinal(value).removesuffix("er")
    return ReadForm(end, f"{articles[case]} {stem}{'e' if case in _UNMARKED[articles['']] else 'en'}")


def _after_article(found: re.Match[str], place: Place, language: European) -> str:
    """The number of a ruler whose article is written: ``Karl dem V.``; empty where there is none."""
    before, value = _ARTICLE.search(place.before), value_of_roman(found[1])
    if not before or not value or before[1].lower().removesuffix("s") not in tables.RULERS:
        return ""
    stem = language.ordinal(value).removesuffix("er")
    return f"{stem}{'e' if before[2] in ('der', 'die') else 'en'}" if found[0].endswith(".") else ""


_ARTICLE = re.compile(r"\b([A-Z]\w+) (der|die|dem|den|des) \Z")
_NAMES = 90


def _case_of_name(before: str) -> str:
    found = _BEFORE_NAME.search(before)
    return next((case for case, words in _CASES.items() if found and found[1].lower() in words), "")


_ARTICLES = {
    "m": {"": "der", "genitive": "des", "dative": "dem", "accusative": "den"},
    "f": {"": "die", "genitive": "der", "dative": "der", "accusative": "die"},
}
_UNMARKED = {"der": ("",), "die": ("", "accusative")}
"""Cases after whose article an ordinal ends with ``e``."""
_CASES = {
    "dative": listed("mit unter von nach bei zu aus gegenüber seit neben zwischen vom zum dem ab einem"),
    "accusative": listed("auf für gegen durch um ohne den man"),
    "genitive": listed("des"),
}
_BEFORE_NAME = re.compile(
    r"\b(\w+) (?:(?:sein|ihr|de|unser)e?[nmrs] [A-Z]\w+ )?"
    r"(?:[A-Z]\w+ [IVX]{1,5}\.?(?:,| und| oder| sowie) ){0,3}"
    r"(?:(?:Kaiser|König|Königin|Queen|King|Papst|Zar|Herzog)[sn]? )?(?:[A-Z]\w+ ){1,2}\Z"
)


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


def first_time(place: Place, language: European) -> ReadForm | None:
    """``8.30–12.00 Uhr``: the first of two times has a dot, as an amount has elsewhere."""
    found = place.match(_FIRST_TIME)
    if not found:
        return None
    to = language.to if found["to"] in "–-" else found["to"]
    first, last = (
        language.clock(Clock(int(found[hour]), int(found[minute] or 0)))
        for hour, minute in (("hour", "minute"), ("last", "rest"))
    )
    return ReadForm(found.end(), f"{first} {to} {last}")


def times(place: Place, language: European) -> ReadForm | None:
    """``3 x Kaffee``."""
    found = place.match(_TIMES)
    return ReadForm(found.end(), f"{language.spell(int(found[1]), 'n')} mal") if found else None


def declined(form: ReadForm, place: Place) -> ReadForm:
    """``nach einem Jahr``, ``einen Bruder``: one in the case that the words before it ask for."""
    words, _, noun = form.words.partition(" ")
    if words.lower() not in ("ein", "eine"):
        return form
    following = _NOUN.match(place.text, form.end)
    if noun in ("", "viertel"):
        noun = f"{noun} {following[1] if following else ''}".strip()
    noun, _, parted = noun.partition(" ")
    is_part = noun == "viertel" and (parted == "Liter" or german_nouns.is_feminine(parted))
    if not (noun[:1].isupper() or is_part) or noun == "Uhr":
        return form
    if is_part:
        gender = "m" if parted == "Liter" else "f"
    else:
        gender = "f" if words.lower() == "eine" else german_nouns.gender(noun).replace("f", "n")
    if gender != "f" and noun.endswith(("ats", "hres", "ages")):
        return ReadForm(form.end, f"eines{form.words[len(words) :]}")
    article = german_nouns.one(gender, german_nouns.case(place, form.end))
    return ReadForm(form.end, article + form.words[len(words) :])


def with_end_of_sentence(form: ReadForm, place: Place) -> ReadForm:
    """The dot of an abbreviation or a day ends a sentence, too, where another begins after it."""
    text = place.text
    if form.words.endswith(".") or text[form.end - 1 : form.end] != ".":
        return form
    if not text[place.start].isdecimal() and not text.startswith(_LAST_WORDS, place.start):
        return form
    following = _NOUN.match(text, form.end)
    labels = following and text[form.end - 2].isalpha() and text.startswith(":", following.end())
    # A station or a closed shop is seldom followed by a noun of its own.
    starts = following and (
        labels
        or _QUESTION.match(text, form.end)
        or following[1] in tables.SENTENCE_STARTS
        or text.startswith(_STATIONS, place.start)
    )
    return ReadForm(form.end, f"{form.words}.") if starts else form


_QUESTION = re.compile(
    r" [A-ZÄÖÜ][a-zäöüß]+en (?:(?:kann|sollte|darf|muss|könn|sollt|dürf|müss)(?:st|en|te|test|ten)? )?"
    r"(?:du|Sie|man) "
    r"| [A-ZÄÖÜ][a-zäöüß]+(?:t|en|e) (?:der|die|das|ein|eine|Sie|du|ihr|es|er|sie|man|wir|ich|dein|mein)e? "
)
"""A verb and its subject, with which a sentence begins: ``Bleibt der Vermieter``."""
_STATIONS = ("Hbf.", "Bhf.", "geschl.")
_LAST_WORDS = (
    *_STATIONS,
    "Mio.",
    "Mrd.",
    "Bio.",
    "Nov.",
    "Dez.",
    "Okt.",
    "usw.",
    "etc.",
    "Einw.",
    "Jh.",
    "v. Chr.",
    "n. Chr.",
    "o. Ä.",
    "u. Ä.",
    "uvm.",
    "p. a.",
    "n. V.",
    "i. E.",
    "u. v. m.",
    "MwSt.",
    "i. F.",
)


FORMS = (
    first_time,
    *german_answers.FORMS,
    *german_short.FORMS,
    short_weekday,
    lasting,
    ruler,
    street,
    whole_euros,
    first_hour,
    times,
)
