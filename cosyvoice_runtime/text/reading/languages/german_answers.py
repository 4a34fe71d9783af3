"""German: what chat models shorten in answers: adjectives, ends of compounds, rows of days, mixtures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import german_nouns
from cosyvoice_runtime.text.reading.languages.language import alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.european import European

WEEKDAYS = {
    "Mo": "Montag", "Di": "Dienstag", "Mi": "Mittwoch", "Do": "Donnerstag", "Fr": "Freitag", "Sa": "Samstag",
    "So": "Sonntag",
}  # fmt: skip
_DAY = alternatives(WEEKDAYS)
_ROW_OF_DAYS = re.compile(rf"(?<![\w.-]){_DAY}\.?(?: ?[/+] ?{_DAY}\.?){{2,6}}(?!\w)")
_BEFORE_HOLIDAY = re.compile(rf"(?<![\w.-])({_DAY})\.?(?= ?(?:und|u\.|&|/|\+) ?(?:Feiertag|feiertag))")
_TIMES_RANGE = re.compile(
    r"(?<![\w.,/:-])([0-9]{1,3}) ?[–-] ?([0-9]{1,3})(?: ?[x×]| ?-?[Mm]al)(?= [a-zäöü(]|[.,;:)]|\Z)"
)
_ADJECTIVE = re.compile(
    r"(?<!\w)(?!\w{0,8}(?:kl|chl|zgl|vgl|evtl|Aufl|engl)\.)"
    r"([A-ZÄÖÜa-zäöüß][a-zäöüß]+(?:[bdfgkmnstz]|hr)l)\.(?: ([A-ZÄÖÜ][a-zäöüß]+))?"
)
_DETERMINED = {
    "e": re.compile(r"\b(?i:der|die|das|diese[rs]?|jede[rs]?|[mdsk]?eine|ihre|unsere) \Z"),
    "en": re.compile(r"\b(?i:den|dem|des|de[mn]|am|im|vom|zum|zur|beim|\w+e[rnms]) \Z"),
    "er": re.compile(r"\b(?i:mit|in|bei|nach|von|unter|zu|aus|wegen|trotz) \Z"),
}
_OF_FEMININE = re.compile(r"\b(?i:d|dies|jed)er \Z")
_ENDS = {
    "str": "straße",
    "temp": "temperatur",
    "gew": "gewicht",
    "geschw": "geschwindigkeit",
    "pl": "platz",
    "nr": "nummer",
    "kl": "klasse",
    "std": "stunden",
}
_COMPOUND = re.compile(rf"(?<!\w)([A-ZÄÖÜ][\w-]{{2,30}}?)({alternatives(_ENDS)})\.(?! ?[A-Z][a-z]{{0,2}}\.)")
_MIXED = re.compile(r"(?<![\w.,:/-])([0-9]{1,3}) ?: ?([0-9]{1,3})(?![\w:]|[.,][0-9]|-[0-9]| Uhr)")
_AFTER_MIXED = re.compile(
    r" (?:mit \w+ )?(?:Wasser|verdünn|gemischt|misch|Mischung|Verhältnis)"
    r"|[ -](?:\w{0,12}(?:[Ss]ieg|[Nn]iederlage|[Ee]rfolg)|Führung|Ausgleich|Endstand|Unentschieden|Remis)\b"
)
_BEFORE_MIXED = re.compile(r"\b(?i:verdünn|misch|gemischt|kopplung|übersetzung)\w{0,6}(?: \w+){0,4} \Z")
_DIVIDED = re.compile(
    r"(?<![\w.,:/])([0-9][0-9.,]{0,12}) ?: ?(?=[0-9.,]{1,12} ?[=≈] ?[-−]?[0-9.,]{1,12}(?![0-9]| ?:))"
)
_SETS = re.compile(
    r"(?<![\w.,])([0-9]{1,2}) ?[x×] ?(?=[0-9]{1,3} ?[–-] ?[0-9]{1,3}(?![\w.,]| ?[=–-])|"
    r"[0-9]{1,3},[0-9] ?[a-z]{1,2}[²³]?(?!\w))"
)
_ONE_OF_KIND = re.compile(r"(?<![\w.,/:-])1 (?=[a-zäöüß]{2,16}(e[nrs]?) ([A-ZÄÖÜ][A-Za-zäöüß]+))")
_HEAPED = re.compile(r"(?<![\w.,])([0-9]{1,2}) (geh|gestr)\. (EL|TL)\b")
_IN_COMPOUND = re.compile(r"(?<![\w.,-])([0-9]{1,4}(?:,[0-9]{1,2})?)-([A-Za-z]{1,3}[.²³]?|%|°C)-(?=[A-ZÄÖÜ])")
_STEMS = {
    "evtl": "eventuell", "dt": "deutsch", "engl": "englisch", "franz": "französisch", "ehem": "ehemalig",
    "sog": "sogenannt", "lat": "lateinisch", "griech": "griechisch", "österr": "österreichisch",
    "ital": "italienisch", "amerik": "amerikanisch", "röm": "römisch", "kath": "katholisch",
    "ev": "evangelisch", "ges": "gesamt",
}  # fmt: skip
"""Adjectives in short that have an ending before a noun."""
_STEM = re.compile(rf"(?<![\w.])({alternatives(_STEMS)}|Dt)\.(?: (?=([A-ZÄÖÜ][a-zäöüß]+)))?")
_ONE_IN_COMPOUND = re.compile(r"(?<![\w.,-])1-(?=[A-ZÄÖÜ][a-zäöü])")
_DURATION = re.compile(r"(?<![\w.,:–-])([0-9]{1,2}):([0-5][0-9])(?::([0-5][0-9]))? ?(?:h|Std\.)(?![\w/])")
_BEFORE_DURATION = re.compile(r"(?:\b(?i:\w*zeit|dauer\w*|\w*dauer|marathon|in))(?: (?:ca\.|von|etwa))?:? \Z")
_VERSION = re.compile(
    r"(?:(?<=[A-Za-z] )()(0)\.([1-9][0-9]{2})|([≥≤]) ?([0-9]{1,3})\.([1-9][0-9]?))(?![\w,%€]|\.[0-9]| ?[%€])"
)
_NAME = re.compile(r"\b[A-Z][A-Za-z.]{2,20} \Z")
_CALL = re.compile(r"\(0[0-9]{2,4}\) ?[0-9]{2,4}(?: [0-9]{2,4}){1,4}(?![\w/]|[.,][0-9])")
_LABEL = re.compile(rf"(?<![\w.-])({_DAY})\.(?=:)")
_OF_DAY = re.compile(r"v\. ?(0?[1-9]|[12][0-9]|3[01])\. ?(0?[1-9]|1[0-2])\.(?! ?[0-9])")
_BEFORE_KEY = re.compile(r"(?<![\w.,])([0-9]{1,3}) (?=[A-Ha-h](?:is|es|s)?-(?:Moll|Dur)\b)")
_TWO_DEGREES = re.compile(r"(?<![\w.,/])([−-]?[0-9]{1,2}) ?/ ?(?=[−-]?[0-9]{1,2} ?°)")
_FACTORIAL = re.compile(r"(?<![\w.,])([0-9]{1,3})!(?= ?[=/·])")
_PER = re.compile(
    r"/(?=(?:Tag|Woche|Monat|Jahr|Stunde|Minute|Person|Kopf|Portion|Team|Nutzer|Einheit|Mahlzeit|Unze|Tasse)\b)"
)
_BEFORE_PER = re.compile(r"(?<!Tag)(?<!Woche)(?<!Monat)(?<!Jahr)(?<!Stunde)(?<=[a-zäöüß)])\Z")
_GREETED = (
    r"(?<![\w-])(?<!\b[Dd]a[sm] )(?<!\b[Dd]e[ms] )(?<!\b[Vv]om )(?<!\b[Vv]on )(?<!\b[BbAa]m )(?<!\beim )"
)
_GREETS = (
    r"(?=[,!.]?(?:\s|\Z))(?! (?:Az|Urt)\.| [^\W_]+[ ,]+(?:Az|Urt|Beschl)\."
    r"| (?:Berlin|Hamburg|München|Köln|Frankfurt|Stuttgart|Düsseldorf|Dortmund|Essen|Bremen|Leipzig|Dresden|"
    r"Hannover|Nürnberg|Bonn|Münster|Mannheim|Karlsruhe|Kiel|Mainz|Freiburg|Augsburg|Aachen|Potsdam)\b)"
    r"(?=,? [A-ZÄÖÜ][a-zäöü]+[.!]?(?:\n|\s*\Z)|[,!.]?\s*(?:\Z|\n)|\s[A-ZÄÖÜ][a-z]+ und [A-Z]| und bis )"
)
"""Around a greeting rather than a court, a firm or a town."""
_SIGNS = (
    (re.compile(r"(?<=[a-zäöüß]-)/(?=[A-ZÄÖÜ]?[a-zäöüß]{2})"), " und "),
    (re.compile(r"(?<=\b[A-Za-z])_(?=[a-z0-9](?!\w))"), " "),
    (re.compile(r"Ø(?= (?:beträgt|ca\.|von|etwa|liegt)|[:,)])"), "Durchmesser"),
    (re.compile(r"(?<=[0-9]{2} )K(?=[.,;)]| [a-zäöü(]|\Z)"), "Kelvin"),
    (re.compile(r"(?<=[0-9] )A(?=[,;)]|\. |\.?\Z| [a-zäöü(])"), "Ampere"),
    (re.compile(r"≙"), "entspricht"),
    (re.compile(r"116 ?117(?![0-9])"), "eins eins sechs, eins eins sieben"),
    (re.compile(r"112(?=\)?(?:[.!,]?\s*\Z| (?:an|wähl|oder 110|anruf)))"), "eins eins zwei"),
    (re.compile(r"110(?=\)?(?: (?:wähl|anruf)))|(?<=112 oder )110\b"), "eins eins null"),
    (re.compile(r"(?<=% )eff\. (?=Jahreszins)"), "effektivem "),
    (re.compile(r"(?<=[0-9])\|(?=[−-]?[0-9])"), ", "),
    (re.compile(r"± ?(?=√)"), "plus minus "),
    (re.compile(r"√ ?(?=\()"), "Wurzel aus "),
    (re.compile(r"(?<=\b[A-Za-z])/(?=[0-9]{1,4}(?![\w/]))"), " geteilt durch "),
    (re.compile(r"(?<=\b[a-z] )%"), "Prozent"),
    (re.compile(r"Wo\. (?=[0-9])"), "Woche "),
    (re.compile(r"(?<=€ ): (?=[0-9])"), "geteilt durch "),
    (re.compile(r"(?<=[0-9a-z] ): ?(?=\([0-9])"), "geteilt durch "),
    (re.compile(r"(?<=\) )km/h\b"), "Kilometer pro Stunde"),
    (re.compile(r"(?<=[0-9] )v\. (?=[0-9]{1,3}(?![.0-9]))"), "von "),
    (re.compile(r"(?<=€ )[·⋅×] ?(?=[0-9(])"), "mal "),
    (re.compile(r"(?<=[)€] )/ ?(?=[0-9(])"), "geteilt durch "),
    (re.compile(r"(?<=°)/(?=-?[0-9])"), ", "),
    (re.compile(r"(?<=, )d\. (?=[0-9]{1,2}\.)"), "den "),
    (re.compile(r"Ø (?=[0-9.,]{1,9}(?![0-9.,])(?! ?(?:[cdmk]?m\b|Zoll|″|\")))"), "durchschnittlich "),
    (re.compile(r"(?<=[0-9]\.)/(?=[0-9]{1,3}\. ?[A-ZÄÖÜ])"), " und "),
    (re.compile(r"(?<=[0-9]\.)[–-](?=[0-9]{1,3}\. ?[A-ZÄÖÜ])"), " bis "),
    (re.compile(rf"{_GREETED}LG{_GREETS}"), "Liebe Grüße"),
    (re.compile(rf"{_GREETED}VG{_GREETS}"), "Viele Grüße"),
    (re.compile(r"(?<=[A-Z][0-9] )x (?=[0-9])"), "mal "),
    (re.compile(r"(?<= )\+ (?=[\w(√])"), "plus "),
    (re.compile(r"(?<=[.!] )= ?(?=[0-9√−-])"), "gleich "),
    (re.compile(r"(?<=[a-z] )x (?=[A-Z] [0-9])"), "mal "),
    (re.compile(r"(?<![\w.])s\. (?=[A-ZÄÖÜ]\w{2})"), "siehe "),
    (re.compile(r"(?<=kg )KG\b"), "Körpergewicht"),
)


def of_day(place: Place, language: European) -> ReadForm | None:
    """``v. 12.5.``: a date, no version; ``Python ≥ 3.10``: a version, no date."""
    if (found := place.match(_VERSION)) and _NAME.search(place.before):
        sign, whole, part = found.groups()[3:] if found[4] else found.groups()[:3]
        words = f"{language.cardinal(whole)} {language.dot} {language.cardinal(part)}"
        return ReadForm(found.end(), f"{language.signs_before[sign]} {words}" if sign else words)
    found = place.match(_OF_DAY)
    if not found:
        return None
    month = language.month_words[int(found[2]) - 1]
    return ReadForm(found.end(), f"vom {language.day(int(found[1]), 'vom')} {month}")


def telephone(place: Place, language: European) -> ReadForm | None:
    """``(0221) 98 76 54``."""
    found = place.match(_CALL)
    if not found:
        return None
    groups = re.findall("[0-9]+", found[0])
    return ReadForm(found.end(), language.grouped([language.telephone_digits(group) for group in groups]))


def days_in_row(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Mo/Mi/Fr``, ``So u. Feiertage``."""
    if found := place.match(_ROW_OF_DAYS):
        *first, last = (WEEKDAYS[day] for day in re.findall(_DAY, found[0]))
        return ReadForm(found.end(), f"{', '.join(first)} und {last}")
    found = place.match(_BEFORE_HOLIDAY) or place.match(_LABEL)
    return ReadForm(found.end(), WEEKDAYS[found[1]]) if found else None


def range_of_times(place: Place, language: European) -> ReadForm | None:
    """``1–3× täglich``, ``60–80-mal``, ``3 × 8–10``."""
    if found := place.match(_SETS):
        return ReadForm(found.end(), f"{language.spell(int(found[1]), 'n')} {language.by} ")
    found = place.match(_TIMES_RANGE)
    if not found:
        return None
    low, high = (language.cardinal(found[at]) for at in (1, 2))
    return ReadForm(found.end(), f"{low} {language.to} {high} {language.by}")


def heaped(place: Place, language: European) -> ReadForm | None:
    """``1 geh. TL``, ``2 gestr. EL``."""
    if found := place.match(_ONE_OF_KIND):
        unit = language.units.get(found[2])
        gender = (
            "f"
            if found[1] == "e"
            else "n"
            if found[1] == "es"
            else german_nouns.gender(unit.one if unit else found[2])
        )
        case = german_nouns.case(place, found.end()) or "accusative" if found[1] == "en" else ""
        return ReadForm(found.end(), f"{german_nouns.one(gender, case)} ")
    found = place.match(_HEAPED)
    if not found:
        return None
    stem = "gehäuft" if found[2] == "geh" else "gestrichen"
    if found[1] == "1":
        words = german_nouns.one("m", german_nouns.case(place, found.end()), stem)
    else:
        words = f"{language.number(language.numerals.parse(found[1]))} {stem}e"
    return ReadForm(found.end(), f"{words} {language.units[found[3]].one}")


def part_of_compound(place: Place, language: European) -> ReadForm | None:
    """``2,5-l-Eimer``, ``3-Zi.-Whg.``: the unit of a compound is never many."""
    if found := place.match(_ONE_IN_COMPOUND):
        return ReadForm(found.end(), "Ein-")
    found = place.match(_IN_COMPOUND)
    unit = language.units.get(found[2]) if found else None
    if not found or not unit:
        return None
    number = "ein" if found[1] == "1" else language.number(language.numerals.parse(found[1]))
    return ReadForm(found.end(), f"{number}-{unit.many if unit.one.endswith('e') else unit.one}-")


def duration(place: Place, language: European) -> ReadForm | None:
    """``Fahrzeit: 3:58 h``, ``in 2:01:09 h``."""
    found = place.match(_DURATION)
    if not found or not (found[3] or _BEFORE_DURATION.search(place.before)):
        return None
    words = [
        language.counted(language.numerals.parse(str(int(count))), language.units[unit])
        for count, unit in zip(found.groups(), ("h", "min", "s"), strict=True)
        if count and int(count)
    ]
    return ReadForm(found.end(), " ".join(words)) if words else None


def adjective(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``jährl.``, ``ohne ärztl. Rat``: an adjective with ``lich`` in short."""
    if found := place.match(_STEM):
        stem = _STEMS.get(found[1], "Deutsch")
        declined = any(each.search(place.before) for each in _DETERMINED.values()) or found[1] != "evtl"
        ending = _ending(place.before, found[2]) if found[2] and declined else ""
        ends = not found[2] and not place.text[found.end() :].strip()
        return ReadForm(found.end() - ends, f"{stem}{ending}{' ' * bool(found[2])}")
    found = place.match(_ADJECTIVE)
    if not found:
        return None
    stem, noun = f"{found[1]}ich", found[2]
    if not noun:
        ends = not place.text[found.end() :].strip()
        return ReadForm(found.end(1) + 1 - ends, stem)
    if stem.endswith(("täglich", "jährlich", "monatlich", "wöchentlich")) and place.before[-3:-1].isdecimal():
        return ReadForm(found.end(1) + 1, stem)
    return ReadForm(found.end(1) + 1, stem + _ending(place.before, noun))


def _ending(before: str, noun: str) -> str:
    feminine = german_nouns.is_feminine(noun)
    if feminine and _OF_FEMININE.search(before):
        return "en"
    for ending, words in _DETERMINED.items():
        if words.search(before):
            return "en" if ending == "er" and not feminine else ending
    if feminine:
        return "e"
    return "es" if german_nouns.gender(noun) == "n" else "er"


def compound(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Bodentemp.``, ``die Kaufingerstr. entlang``."""
    found = place.match(_COMPOUND)
    if not found:
        return None
    ends = not place.text[found.end() :].strip()
    return ReadForm(found.end() - ends, found[1] + _ENDS[found[2]])


def mixed(place: Place, language: European) -> ReadForm | None:
    """``1:10 mit Wasser``, ``ein 2:1-Sieg``: no time of day."""
    found = place.match(_MIXED)
    if not found:
        return None
    if not _AFTER_MIXED.match(place.text, found.end()) and not _BEFORE_MIXED.search(place.before):
        return None
    return ReadForm(found.end(), language.ratio(language.cardinal(found[1]), language.cardinal(found[2])))


def divided(place: Place, language: European) -> ReadForm | None:
    """``90 : 6 = 15``, ``5! = 120``."""
    if found := place.match(_DIVIDED):
        number = language.number(language.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{number} {language.operations['/']} ")
    found = place.match(_FACTORIAL)
    return ReadForm(found.end(), f"{language.cardinal(found[1])} Fakultät") if found else None


def sign(place: Place, language: European) -> ReadForm | None:
    """``Schläge/Tag``, ``Ober-/Unterhitze``, ``a_n``, ``16 A``."""
    for pattern, mark in ((_BEFORE_KEY, ""), (_TWO_DEGREES, ",")):
        if found := place.match(pattern):
            return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))}{mark} ")
    if place.match(_PER) and _BEFORE_PER.search(place.before):
        return ReadForm(place.start + 1, " pro ")
    for pattern, words in _SIGNS:
        if found := place.match(pattern):
            return ReadForm(found.end(), words)
    return None


FORMS = (
    of_day,
    telephone,
    heaped,
    part_of_compound,
    duration,
    days_in_row,
    range_of_times,
    mixed,
    divided,
    compound,
    adjective,
    sign,
)
