"""German: halves, versions, months and points of the compass in short, signs and Greek letters."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import german_nouns
from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.language import Unit
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.european import European

_HALF = re.compile(
    r"(?<![\w.,/-])(?<![0-9] )1[/⁄]2 (?:[a-zäöüß]{2,12}e[rs]? )?([A-ZÄÖÜ]?[a-zäöüß]+|[A-Z]{2})\b\.?"
)
_HALF_HOUR = re.compile(
    r"(?<![\w.,/-])(?<![0-9] )([13]/4|1/2) ([1-9]|1[0-2])(?: Uhr)?(?!\w|[.,:/][0-9]| ?[%°€]| [A-ZÄÖÜ])"
)
_BEFORE_HOUR = re.compile(r"\b(?i:um|gegen|bis|ab|vor|nach|kurz vor|es ist|sagen wir|so) \Z")
_PARTS_OF_HOUR = {"1/2": "halb", "1/4": "viertel", "3/4": "dreiviertel"}
_MONTH = "(Jan|Feb|Mär|Mrz|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)"
_FULL_MONTH = r"([JFMASOND][a-zä]{2,8})"
_MONTHS = re.compile(rf"(?<!\w){_FULL_MONTH}\.?\s?([-–/])\s?{_FULL_MONTH}(?:\.|(?!\w))")
_ONE_MONTH = re.compile(rf"(?<!\w){_MONTH}\.")
_BEFORE_MONTH = re.compile(r"\b(?i:im|anfang|anf\.|mitte|ende|seit|ab|bis|von|vom|zum) \Z")
_DOTTED = re.compile(
    r"(?<![\w.,])([0-9]{1,3})\.([0-9]{1,2})(?![\w%°€$/]|[.,:][0-9]|\s?[%°€$])(?: ([^\W\d_]+\.?))?"
)
_NAME = re.compile(r"\b(i?[A-ZÄÖÜ][\w+#]*(?:[.-]\w+)?)[ *`]{1,4}\Z")
_AMOUNTS = re.compile(
    r"(?i)note|schnitt|wert|faktor|preis|kurs|index|punktzahl|summe|betrag|dose|wind|uhr|am|vom|zum|pi"
)
_DAY = re.compile("0[1-9]|1[0-2]")
_DATE_GOES_ON = re.compile(r"\.(?:[,;:)–-]| [a-z]|\Z|\n)")
_MODEL = re.compile(r"(?<![\w.])([A-Z]{1,4})\.([0-9]{1,2})(?!\w|[.,][0-9])")
_COMPASS = {"N": "Nord", "S": "Süd", "O": "Ost", "W": "West"}
_DIRECTION = re.compile(r"(?<![\w.-])([NS]?[NSOW]{1,2})(?![\w-]|\.\w)")
_BEFORE_DIRECTION = re.compile(
    r"\b(?i:\w*wind|\w*winde|böen|brise|richtung|sturm)(?: (?:weht|dreht|kommt|wehen))?:?"
    r"(?: (?:aus|nach|auf|von|um))? \Z"
    r"|\baus \Z|\b(?:aus|von|nach) [NSOW]{1,3} (?:nach|auf|bis|und) \Z"
)
_PERCENT = re.compile(r"(?<![\w.,])([0-9]{1,3}(?:,[0-9]{1,2})?)\s?%-?(ig(?:e[nrsm]?)?)\b")
_SENTENCE_OF_LAW = re.compile(r"S\. ?(?=[0-9])")
_BEFORE_SENTENCE = re.compile(r"(?:Abs\.|§|Art\.) ?[0-9]{1,4}[a-z]? \Z")
_AND = re.compile(r"(?<=\w)&(?=\w)")
_INCHES = re.compile(r"(?<![\w.,\"„“])([0-9]{1,3}(?:[.,][0-9]{1,2})?) ?(?:\"|″|'')(?!\w)")
_QUOTED = re.compile(r"(?:\A|[\s(])\"[^\"]{0,200}\Z")
"""An opening mark whose closing one is no sign of inches."""
_SIGNS = (
    (re.compile(r"(?<=\))(?:²|\^2)"), " zum Quadrat"),
    (re.compile(r"(?<=\))(?:³|\^3)"), " hoch drei"),
    (re.compile(r"(?<=[\w)²³] )[·⋅×] ?(?=[\w(√])"), "mal "),
    (re.compile(r"(?<=[\w€%$)] )− ?(?=[0-9(A-Z])"), "minus "),
    (re.compile(r"(?<=[0-9] )€"), "Euro"),
    (re.compile(r"(?<=[\w)] )/ ?(?=[(])"), "geteilt durch "),
    (re.compile(r"(?<=kcal)/(?=[0-9])"), " pro "),
    (re.compile(r"(?<=Einw\.)/km²"), " pro Quadratkilometer"),
    (re.compile(r"(?<=[A-Za-zäöü])/(?:km²|m²)"), " pro Quadratmeter"),
    (re.compile(r"(?<=[a-zäöüß]{3})/kg\b"), " pro Kilogramm"),
    (re.compile(r"(?<=\b[Pp]ro )lfd\. ?m\b"), "laufenden Meter"),
    (re.compile(r"(?<=[0-9])x(?=[0-9]{1,4}(?:[x ]|cm|mm|m))"), "mal "),
    (re.compile(r"(?<=[0-9]\. )Min\.(?= |,|\)|\Z)"), "Minute"),
    (re.compile(r"(?<=[0-9]\. )Std\.(?= |,|\)|\Z)"), "Stunde"),
    (re.compile(r"v\. (?=[0-9]{1,2}\.)"), "vom "),
    (
        re.compile(r"(?<=\b(?:Strg|Ctrl))\+(?=[A-Z])|(?<=\bAlt)\+(?=[A-Z])|(?<=\bUmschalt)\+(?=[A-Z])"),
        " plus ",
    ),
    (re.compile(r"(?<=[a-zäöü] )v\. (?=[A-ZÄÖÜ][a-zäöü]{3})"), "von "),
    (re.compile(r"1/2 (?=davon\b)"), "die Hälfte "),
    (re.compile(r"(?<=[0-9€%$)²³] )\+ ?(?=[\w(])"), "plus "),
    (re.compile(r"(?<=[\w)²³€%] )= ?(?=[\w(√−-])"), "gleich "),
    (re.compile(r"Ø (?=[0-9])"), "Durchmesser "),
    (re.compile(r"(?<= )@ (?=[0-9])"), "bei "),
    (re.compile(r"(?<=\b[Pp]ro )kg\b|(?<=\b[Jj]e )kg\b"), "Kilogramm"),
    (re.compile(r"(?<=\b[Pp]ro )m²|(?<=\b[Jj]e )m²"), "Quadratmeter"),
    (re.compile(r"(?<=\b[Pp]ro )(?:Std\.|h\b)"), "Stunde"),
    (re.compile(r"(?<=\b[Pp]ro )(?:km)\b"), "Kilometer"),
    (re.compile(r"(?<=\b[Pp]ro )(?:Min\.)"), "Minute"),
    (re.compile(r"(?<=\b[Pp]ro )(?:Pers\.)"), "Person"),
    (re.compile(r"(?<![\w.])km (?=[0-9])"), "Kilometer "),
)
_MINUTES = re.compile(r"([0-9]{1,3})\.(\+[0-9]{1,2})?(?=\)|, ?[0-9]{1,3}\.|, [A-ZÄÖÜ]|/[0-9]{1,3}\.|/[A-Z])")
_BEFORE_MINUTES = re.compile(r"\((?:[0-9]{1,3}\.(?:\+[0-9]{1,2})?(?:/[A-Z]{1,3})?[,/] ?){0,5}\Z")
_SHORT_TIME = re.compile(
    r"(?<![\w.,/:–-])([0-9]{1,3}(?:\.[0-9]{3})?)(?: ?[–-] ?([0-9]{1,3}))?"
    r" ?(J|Mon|Tg|Pkt|S(?=\.(?! ?[0-9])))\.(?![\w])"
)
_LAP = re.compile(r"(?<![\w.,:/-])([0-9]{1,2}):([0-5][0-9]),([0-9]{1,3})(?![\w:]|[.,][0-9])")
_SECONDS = re.compile(r" ?(?:min|Min\.|Minuten)(?![\w/])")
_HOURS = re.compile(r"(?<![\w.,:/-])([0-9]):([0-5][0-9]) ?h\b")
_BEFORE_HOURS = re.compile(
    r"\b(?i:braucht?|brauchst|brauchen|brauchte|benötigt|dauert|dauerte|dauern|"
    r"in|für|nach|zeit|dauer|rund|etwa|ca\.|insgesamt|gut|knapp)"
    r"(?: (?:man|er|sie|es|du|Sie|ca\.|etwa|rund))?:? \Z"
)
_LETTERED = re.compile(r"([0-9]{1,3})([A-K])(?![\w]|[.,][0-9])")
_BEFORE_LETTERED = re.compile(
    r"\b(?:Sitz(?:platz)?|Platz|Sitze|Gate|Gleis|Haus|Eingang|Halle|Zimmer|Wohnung|Klasse) \Z"
)
_SECTION = re.compile(r"(?<![\w.,/:-])([1-9][0-9]{1,2})/([1-9][0-9]{1,2}) ?(mm|cm)(?![\w²³/])")
_PAGE = Unit("Seite", "Seiten", "f")
_PACKET = re.compile(r" (?!Vorsprung|Rückstand|Abstand|Abzug)[A-ZÄÖÜ][a-zäöüß]{3}")
_OF_DATIVE = re.compile(
    r"\b(?i:mit|bei|ab|unter|von|seit|vor|nach|zwischen|bis zu|in|aus|binnen|"
    r"[0-9]{1,3} und|von [0-9]{1,3} bis)"
    r"(?: ca\.| etwa| rund| über| mehr als| weniger als| mindestens| höchstens)? \Z"
)
_DAYS = re.compile(
    r"(?<![\w.,:/-])([0-3]?[0-9])\.\s?(?P<mark>[–/-])\s?([0-3]?[0-9])\."
    r"(?:([01]?[0-9])\.(?![0-9])|(?= [A-ZÄÖÜ]))"
)
_MONTH_NAME = re.compile(" ?[A-Z][a-zä]+")
_PARAGRAPH = re.compile(r"([0-9]{1,4})([a-z])(?!\w)")
_OF_LAW = re.compile(r"(?:§|Art\.|Artikel|Paragraf) ?\Z|§§ (?:[0-9]{1,4}[a-z]?, ){0,5}\Z")
_TELEPHONE = re.compile(
    r"(?<![\w.,/:-])0[0-9]{2,5} ?[/–-] ?[0-9]{2,8}(?: [0-9]{2,4}){0,4}(?:-[0-9]{1,4})?(?![\w/]|[.,][0-9])"
)
_OUT_OF = re.compile(r"(?<![\w.,/:-])(?<![0-9] )([0-9]{1,3})/([0-9]{1,3})(?= [A-ZÄÖÜ][a-zäöü])")
_TWO_YEARS = re.compile(
    r"(?<![\w.,/:-])([1-9][0-9]{2,3})/([0-9]{2,4})(?:[–-]([0-9]{3,4}))?(?![\w/]|[.,][0-9])"
)
_GREEK = re.compile(r"(?<![Ͱ-Ͽ])[α-ωΓΔΘΛΞΠΣΦΨΩ](?![Ͱ-Ͽ])")
_ABOUT = re.compile("≈ ?(?=[0-9])")
_EQUALS = re.compile(r"[0-9)²³%] ?\Z")


def half(place: Place, language: European) -> ReadForm | None:
    """``1/2 TL``, ``mit 1/2 Tasse``: a half agrees with the noun after it."""
    found = place.match(_HALF)
    if not found:
        return None
    word = found[0].rsplit(" ", 1)[1]
    unit = language.units.get(word) or language.units.get(found[1])
    noun = unit.one if unit else found[1]
    if not noun[0].isupper() or noun in tables.SENTENCE_STARTS or noun == "Fuß":
        return None
    gender = "f" if unit and unit.gender == "f" else german_nouns.gender(noun.split(" ")[0])
    words = german_nouns.one(gender, german_nouns.case(place, found.end()), "halb")
    if place.word_before in ("alle", "eine"):
        words = "halbe" if gender == "f" else "halben"
    elif place.word_before in ("einen", "einer", "einem", "der", "die", "den", "dem"):
        words = "halben"
    elif place.word_before == "ein":
        words = words.split()[1]
    if unit is None:
        return ReadForm(place.start + 3, words)
    end = found.end() - (word.endswith(".") and word not in language.units)
    return ReadForm(end, f"{words} {noun}")


def half_hour(place: Place, language: European) -> ReadForm | None:
    """``um 1/2 8``."""
    found = place.match(_HALF_HOUR)
    if not found or not _BEFORE_HOUR.search(place.before):
        return None
    return ReadForm(found.end(), f"{_PARTS_OF_HOUR[found[1]]} {language.cardinal(found[2])}")


def short_month(place: Place, language: European) -> ReadForm | None:
    """``Jan.–Dez.``, ``im Feb.``."""
    names = language.month_words
    found = place.match(_MONTHS)
    if found and all(found[at].lower() in language.months for at in (1, 3)):
        first, last = (names[language.months[found[at].lower()] - 1] for at in (1, 3))
        return ReadForm(found.end(), f"{first} {'und' if found[2] == '/' else language.to} {last}")
    found = place.match(_ONE_MONTH)
    if not found or not _BEFORE_MONTH.search(place.before):
        return None
    ends = not place.text[found.end() :].strip()
    return ReadForm(found.end() - ends, names[language.months[found[1].lower()] - 1])


def dotted_name(place: Place, language: European) -> ReadForm | None:
    """``Git 2.28``, ``Kapitel 3.2``: a dot after a name is none of an amount, whose fraction has a comma."""
    found = place.match(_DOTTED)
    name = _NAME.search(place.before) if found else None
    if not found or not name or name[1] in tables.SENTENCE_STARTS or _AMOUNTS.fullmatch(name[1].lower()):
        return None
    if found[3] and found[3] in _measures(language):
        return None
    if _DAY.match(found[2]) and _DATE_GOES_ON.match(place.text, found.end(2)):
        return None
    part = found[2]
    last = language.digits(part) if part.startswith("0") else language.cardinal(part)
    return ReadForm(found.end(2), f"{language.cardinal(found[1])} {language.dot} {last}")


@cache
def _measures(language: European) -> frozenset[str]:
    """Words after an amount."""
    words = {unit.one for unit in language.units.values()} | {unit.many for unit in language.units.values()}
    return frozenset({*words, *language.units, *language.currencies, *language.scales, "Uhr", "Prozent"})


def model(place: Place, language: European) -> ReadForm | None:
    """``ID.3``."""
    found = place.match(_MODEL)
    return ReadForm(found.end(), f"{found[1]} {language.cardinal(found[2])}") if found else None


def direction(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Wind aus NW``."""
    found = place.match(_DIRECTION)
    if not found or not _BEFORE_DIRECTION.search(place.before):
        return None
    words = "".join(_COMPASS[letter] for letter in found[1]).capitalize()
    return ReadForm(found.end(), words)


def percent(place: Place, language: European) -> ReadForm | None:
    """``5%ige``."""
    found = place.match(_PERCENT)
    if not found:
        return None
    return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} prozent{found[2]}")


def sentence_of_law(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Abs. 1 S. 2``."""
    found = place.match(_SENTENCE_OF_LAW)
    return ReadForm(found.end(), "Satz ") if found and _BEFORE_SENTENCE.search(place.before) else None


def sign(place: Place, language: European) -> ReadForm | None:
    """``C&A``, ``π``, ``3,14 ≈ 3``."""
    if place.match(_AND):
        return ReadForm(place.start + 1, "und")
    if (found := place.match(_INCHES)) and not _QUOTED.search(place.text[: place.start]):
        return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} Zoll")
    for pattern, words in _SIGNS:
        if found := place.match(pattern):
            return ReadForm(found.end(), words)
    found = place.match(_ABOUT)
    if found and _EQUALS.search(place.before):
        return ReadForm(found.end(), f"{language.operations['≈']} ")
    return None


def minutes(place: Place, language: European) -> ReadForm | None:
    """``(12., 45.+2)``: minutes of a match."""
    found = place.match(_MINUTES)
    if not found or not _BEFORE_MINUTES.search(place.before):
        return None
    words = language.ordinal(int(found[1])).removesuffix("r")
    return ReadForm(found.end(), f"{words} plus {language.cardinal(found[2][1:])}" if found[2] else words)


def short_time(place: Place, language: European) -> ReadForm | None:
    """``mit 82 J.``, ``24 Mon.``."""
    found = place.match(_SHORT_TIME)
    if not found:
        return None
    is_packet = found[3] == "Pkt" and _PACKET.match(place.text, found.end())
    unit = _PAGE if found[3] == "S" else language.units["Pck." if is_packet else f"{found[3]}."]
    of_dative = _OF_DATIVE.search(place.before) and not unit.many.endswith("n")
    many = f"{unit.many}n" if of_dative else unit.many
    low, high = (language.numerals.parse(number or "0") for number in found.groups()[:2])
    unit = unit._replace(many=many)
    return ReadForm(
        found.end(), language.range_of(low, high, unit) if found[2] else language.counted(low, unit)
    )


def lap(place: Place, language: European) -> ReadForm | None:
    """``1:18,446``, and ``3:52 h`` where no word of a time of day stands before."""
    if found := place.match(_LAP):
        minutes = language.counted(language.numerals.parse(found[1]), language.units["min"])
        seconds = f"{int(found[2])},{found[3]}"
        words = language.counted(language.numerals.parse(seconds), language.units["s"])
        rest = _SECONDS.match(place.text, found.end())
        words = f"{minutes} {words}" if int(found[1]) else words
        return ReadForm(rest.end() if rest else found.end(), words)
    found = place.match(_HOURS)
    if not found or not _BEFORE_HOURS.search(place.before):
        return None
    parts = [(found[1], "h"), (found[2], "min")]
    spoken = [
        language.counted(language.numerals.parse(str(int(count))), language.units[unit])
        for count, unit in parts
        if int(count)
    ]
    return ReadForm(found.end(), " ".join(spoken)) if spoken else None


def place_of_letter(place: Place, language: European) -> ReadForm | None:
    """``Sitz 23A``, which are no amperes."""
    found = place.match(_LETTERED)
    if not found or not _BEFORE_LETTERED.search(place.before):
        return None
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {found[2]}")


def section(place: Place, language: European) -> ReadForm | None:
    """``60/80 mm``: the two sides of a beam."""
    found = place.match(_SECTION)
    if not found:
        return None
    unit = language.units[found[3]].many
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.cardinal(found[2])} {unit}")


def days(place: Place, language: European) -> ReadForm | None:
    """``vom 03.–14.06.``."""
    found = place.match(_DAYS)
    if not found:
        return None
    named = None if found[4] else _MONTH_NAME.match(place.text, found.end())
    month = int(found[4]) if found[4] else language.months.get(named[0].strip().lower(), 0) if named else 0
    if not 0 < month <= 12:
        return None
    before = place.word_before
    first, last = (language.day(int(found[at]), before) for at in (1, 3))
    words = f"{first} {'und' if found['mark'] == '/' else language.to} {last}"
    return ReadForm(found.end(), words if named else f"{words} {language.month_words[month - 1]}")


def paragraph(place: Place, language: European) -> ReadForm | None:
    """``§ 312g``."""
    found = place.match(_PARAGRAPH)
    if not found or not _OF_LAW.search(place.before):
        return None
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {found[2]}")


def telephone(place: Place, language: European) -> ReadForm | None:
    """``069 / 987 65 43``."""
    found = place.match(_TELEPHONE)
    if not found:
        return None
    return ReadForm(
        found.end(),
        language.grouped([language.telephone_digits(part) for part in re.findall("[0-9]+", found[0])]),
    )


def out_of(place: Place, language: European) -> ReadForm | None:
    """``23/25 Tickets``."""
    found = place.match(_OUT_OF)
    if not found or not 1 < int(found[1]) <= int(found[2]) or int(found[2]) < 11:
        return None
    return ReadForm(found.end(), language.out_of(language.cardinal(found[1]), language.cardinal(found[2])))


def two_years(place: Place, language: European) -> ReadForm | None:
    """``1734/35``."""
    found = place.match(_TWO_YEARS)
    if not found or int(found[2]) != (int(found[1]) + 1) % 10 ** len(found[2]):
        return None
    if len(found[2]) == 2 and not found[1].startswith("1"):
        return None
    last = language.year(int(found[2])) if len(found[2]) > 2 else language.cardinal(found[2])
    words = f"{language.year(int(found[1]))} {last}"
    return ReadForm(found.end(), language.ranged(words, language.year(int(found[3]))) if found[3] else words)


def greek(place: Place, language: European) -> ReadForm | None:
    """A Greek letter outside a formula."""
    found = place.match(_GREEK)
    return ReadForm(found.end(), language.letters[found[0]]) if found else None


FORMS = (
    half_hour, half, short_month, dotted_name, model, direction, percent, sentence_of_law, sign, days,
    lap, place_of_letter, section, minutes, greek, short_time, paragraph, telephone, out_of, two_years,
)  # fmt: skip
