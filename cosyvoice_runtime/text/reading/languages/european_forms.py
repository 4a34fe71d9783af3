"""Forms that the languages of Europe other than English share: IBANs, versions, months of years, results."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages.language import Date, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.european import European

_IBAN = re.compile(r"(?<!\w)([A-Z]{2})([0-9]{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?)(?!\w)")
_VERSION = re.compile(r"(?:(?<![\w.,])|(?<=\b[vV]))([0-9]{1,3})\.([0-9]{1,3})(?![\w,]|\.[0-9])")
_VERSIONED = re.compile(
    r"(?:\b(?:[Vv]ersion|[Vv]ersi[óo]ne?|[Vv]ersão|[Вв]ерси[яию]|Python|Java|Node\.js|PHP|Ruby|Rust|Go|iOS|iPadOS|macOS|"
    r"Android|Windows|Linux|Ubuntu|Debian|PostgreSQL|MySQL|Django|React|Angular|Vue|CUDA|PyTorch|Raum|Zimmer|Saal|Halle|[Ss]alle|[Ss]ala|Bluetooth|USB|"
    r"HTTP|HDMI|TLS|GPT|Claude|Gemini|Llama) |\bv\.? ?|\b(?:GPT|Llama|Gemini)-)\Z"
)
_MONTH_OF_YEAR = re.compile(r"(?<![\w.,:/-])(0[1-9]|1[0-2])/((?:19|20)[0-9]{2})(?![\w/-]|[.,][0-9])")
_RESULT = re.compile(r"(?<![\w.,:/])([0-9]{1,3}):([0-9]{1,3})(?![\w:]|[.,][0-9])")
_SCALE = re.compile(r"(?<![\w.,:/])1 ?: ?([0-9]{1,3}(?:[. ]000)+|[0-9]{4,7})(?![\w:]|[.,][0-9])")
_OF_YEAR = re.compile(r"(?<![\w.,:/-])([0-9]{1,4})/((?:19|20)[0-9]{2})(?![\w/-]|[.,][0-9])")
_PAIR = re.compile(r"(?<![\w.,-])([0-9]{1,4})-([0-9]{1,4})(?![\w/-]|[.,][0-9])")
_NUMBERED = re.compile(r"(?:\bn[°º.]|\bn\.º|\bNr\.|№|\bn[uú]m[eé]ro) ?\Z", re.IGNORECASE)
_LASTING = re.compile(r"(?<![\w.,:])([0-9]{1,2}) ?h ?([0-5][0-9])(?: ?min\b)?(?!\w)")
_LASTS = re.compile(
    r"(?:\b[Dd]ur[aóo][a-zãç]*|\bdurée|\bdemor[a-z]+)(?: (?:de|cerca de|unas|umas|es de|é de))? \Z"
)
_EQUALS = re.compile(r"=(?= ?[-−]?[$€£]?[0-9])")
_EQUAL = re.compile(r"[0-9€$£%\w)] ?\Z")
_POSTCODE = re.compile(r"(?<![\w.,-])[0-9]{5}(?= [A-ZÄÖÜÁÉÍÓÚ][a-zäöüßáéíóúñàèéìòù])")
_PRESSURE = re.compile(r"(?<![\w.,/])([1-2]?[0-9]{2})/([0-9]{2,3})(?![\w/]|[.,][0-9]|\s?mm)")
_OF_PRESSURE = re.compile(
    r"(?i:\b(?:blutdruck|tension|presi[oó]n|pressione|press[ãa]o|давлени))[^0-9]{0,20}\Z"
)
_HOUSE = re.compile(r"(?:Stock|OG|EG|Etage)\)?, \Z|[0-9][a-z]?[,.]? \Z|\b[A-Z]-\Z")


def iban(place: Place, language: European) -> ReadForm | None:
    """An account's number: letter by letter, digit by digit, a pause between groups."""
    found = place.match(_IBAN)
    if not found:
        return None
    digits = found[2].replace(" ", "")
    groups = [" ".join(found[1]), digits[:2], *(digits[at : at + 4] for at in range(2, len(digits), 4))]
    words = (
        " ".join(language.digits(one) if one.isdecimal() else one for one in group) for group in groups[1:]
    )
    return ReadForm(found.end(), ", ".join((groups[0], *words)))


def version(place: Place, language: European) -> ReadForm | None:
    """Two numbers with a dot between them after the name of a program: ``Python 3.11``."""
    found = place.match(_VERSION)
    if not found or not _VERSIONED.search(place.before):
        return None
    dot = language.dot or language.point
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {dot} {language.cardinal(found[2])}")


def month_of_year(place: Place, language: European) -> ReadForm | None:
    """``06/2026``."""
    found = place.match(_MONTH_OF_YEAR)
    return ReadForm(found.end(), language.date(Date(int(found[1]), year=int(found[2])))) if found else None


def result(place: Place, language: European) -> ReadForm | None:
    """``1:49`` after words of results and ratios, which is no time."""
    found = place.match(_RESULT)
    if not found or not _of_results(language.before_result).search(place.before):
        return None
    return ReadForm(found.end(), language.score(language.cardinal(found[1]), language.cardinal(found[2])))


def scale_of_map(place: Place, language: European) -> ReadForm | None:
    """``1:25.000``."""
    found = place.match(_SCALE)
    if not found:
        return None
    return ReadForm(found.end(), language.to_one(language.cardinal(re.sub("[. ]", "", found[1]))))


def of_year(place: Place, language: European) -> ReadForm | None:
    """``39/2015``: the number of a law in a year."""
    found = place.match(_OF_YEAR) if language.of_year else None
    if not found:
        return None
    year = language.year(int(found[2]))
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.of_year} {year}")


def numbered(place: Place, language: European) -> ReadForm | None:
    """``n° 78-17``: two numbers that are no range."""
    found = place.match(_PAIR)
    if not found or found[2].startswith("0") or not _NUMBERED.search(place.before):
        return None
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.cardinal(found[2])}")


def size(place: Place, language: European) -> ReadForm | None:
    """The first number of a size with a unit: ``105 × 68 m``."""
    found = place.match(_size(language))
    if not found:
        return None
    return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} {language.by} ")


@cache
def _size(language: European) -> re.Pattern[str]:
    number = language.numerals.pattern
    units = alternatives(
        sign for sign in ("mm", "cm", "m", "km", "px", "мм", "см", "м") if sign in language.units
    )
    return re.compile(
        rf"(?<![\w.,])({number})\s?[x×]\s?(?={number}(?:\s?[x×]\s?{number})?\s?(?:{units})(?![\w²³^/]))"
    )


def weekdays(place: Place, language: European) -> ReadForm | None:
    """``lun. a vie.``: the first and the last of some days in short."""
    found = place.match(_weekdays(language)) if language.short_weekdays else None
    if not found:
        return None
    first, last = (language.short_weekdays[day.lower()] for day in (found[1], found[3]))
    return ReadForm(found.end(), language.days(first, found[2] or language.to, last))


@cache
def _weekdays(language: European) -> re.Pattern[str]:
    day = alternatives(language.short_weekdays)
    return re.compile(rf"(?i:(?<![\w.-])({day})\.?(?:\s?[-–—]\s?| (a|à|au|al) )({day})(?:\.|(?!\w)))")


def lasting(place: Place, language: European) -> ReadForm | None:
    """``1h30`` after a verb of lasting, which is no time of day."""
    found = place.match(_LASTING)
    if not found or not _LASTS.search(place.before):
        return None
    hours, minutes = (
        language.counted(language.numerals.parse(found[at]), language.units[unit])
        for at, unit in ((1, "h"), (2, "min"))
    )
    return ReadForm(found.end(), f"{hours} {language.between} {minutes}")


def equals(place: Place, language: European) -> ReadForm | None:
    """A sign of equality after an amount, which begins no formula."""
    found = place.match(_EQUALS)
    if not found or not _EQUAL.search(place.before):
        return None
    return ReadForm(found.end(), language.operations["="])


@cache
def _of_results(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?i:{words})[a-zа-яß]{{0,4}}(?: [^\W\d]+){{0,2}}:? \Z")


def postcode(place: Place, language: European) -> ReadForm | None:
    """Five digits between a house's number and a town."""
    found = place.match(_POSTCODE)
    if not found or not language.spells_postcodes or not _HOUSE.search(place.before):
        return None
    return ReadForm(found.end(), language.telephone_digits(found[0]))


def one_of_scale(place: Place, language: European) -> ReadForm | None:
    """``1 Mio.``: the abbreviation of a scale after one."""
    found = place.match(_one_scale(language))
    if not found:
        return None
    one = language.single_scales[language.scales[found[1]]]
    gender = language.gender_of(one, language.numerals.parse("1"))
    return ReadForm(found.end(), f"{language.spell(1, gender or 'm')} {one}")


@cache
def _one_scale(language: European) -> re.Pattern[str]:
    short = [
        sign for sign, many in language.scales.items() if many in language.single_scales and sign != many
    ]
    if not short:
        return re.compile("(?!)")
    return re.compile(rf"(?<![\w.,/:-])1\s?({alternatives(short)})(?!\w|\s?[€$£])")


def pressure(place: Place, language: European) -> ReadForm | None:
    """``120/80`` after the word for a blood pressure."""
    found = place.match(_PRESSURE)
    if not found or not _OF_PRESSURE.search(place.before):
        return None
    return ReadForm(found.end(), language.over(language.cardinal(found[1]), language.cardinal(found[2])))


def hectares(place: Place, language: European) -> ReadForm | None:
    """``5 ha`` where ``ha`` is a verb, too."""
    found = place.match(_hectares(language))
    if not found:
        return None
    return ReadForm(found.end(), language.counted(language.numerals.parse(found[1]), language.units["ha"]))


@cache
def _hectares(language: European) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.,])({language.numerals.pattern}) ha(?= (?:di|de)\b|[.,;:)]|\Z)")


FORMS = (
    pressure, iban, version, month_of_year, scale_of_map, result, postcode, one_of_scale, of_year, numbered,
    size, weekdays, equals,
)  # fmt: skip
