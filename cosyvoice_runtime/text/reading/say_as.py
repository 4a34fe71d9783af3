"""How ``<say-as interpret-as="date" format="dmy">`` is spoken: words of a kind that need no guess."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.reading import chinese, say_as_dates
from cosyvoice_runtime.text.reading.classes import measure, money, telephone, word
from cosyvoice_runtime.text.reading.languages.language import Language
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place
from cosyvoice_runtime.text.reading.reader import FormReader
from cosyvoice_runtime.text.reading.whole import said_whole

_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_MIXED = re.compile("(?<=[0-9])(?=[¼-¾⅐-⅞])")
_PARTS = re.compile(r"[0-9]+|\s+|.[\u0300-\u036f]*", re.DOTALL)
_UNSPOKEN = frozenset("'’‘\"“”·")
_DIGITS = re.compile(r"[0-9]+(?:[ .,/-]{1,3}[0-9]+)*")
_TELEPHONE = re.compile(r"\+?\(?[0-9]+(?:[ ().,/-]{1,3}[0-9]+)*")
_FRACTION = re.compile(r"(?:([0-9]{1,12})\s?[ +]\s?)?([0-9]{1,9})\s?[/⁄]\s?([0-9]{1,9})")
_ORDINAL = re.compile(
    r"(?:第|제)?\s?([0-9]{1,9})\s?(?:st|nd|rd|th|[.ºª°]|er|re|e|ère|ème|番目?|目|번째|-?(?:й|я|е|го|ый|ой|ая))?",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"[-−+]?[0-9.,]+\s?[^\W\d_][^\d_]*")


def said_as(words: str, kind: str, form: str, language: Language) -> str:
    """The words that are spoken for words of a kind.

    Args:
        words: as they stand between the tags.
        kind: value of ``interpret-as``, in any case.
        form: value of ``format``: the order of a date (``dmy``), a clock (``hms12``, ``hms24``), the code
            of a currency that does not stand with its amount; empty for what the language writes.
        language: whose words are spoken.

    Raises:
        InvalidInput: the kind or its form is unknown, or the words are nothing of that kind.
    """
    says = _KINDS.get(kind.strip().lower())
    if says is None:
        raise InvalidInput("target_text", kind, f"interpret-as: one of {', '.join(_KINDS)}")
    words = _MIXED.sub(" ", unicodedata.normalize("NFC", " ".join(words.split())))
    words = "".join(each if each in "ºª" else unicodedata.normalize("NFKC", each) for each in words)
    return says(words, form.strip(), language) if words else ""


def _refusal(words: str, kind: str, wanted: str) -> InvalidInput:
    return InvalidInput("target_text", words, f"interpret-as={kind}: {wanted}")


def _characters(words: str, _form: str, language: Language) -> str:
    """Letters and digits one by one, signs by their names, a pause between words."""
    said = ""
    for part in _spelled(words, language):
        wide = said[-1:] in ("，", "、") or (_EAST_ASIAN.match(said[-1:]) and _EAST_ASIAN.match(part))
        if said and part != language.pause and not wide:
            said += " "
        said += part
    return said


def _spelled(words: str, language: Language) -> Iterator[str]:
    for part in _PARTS.findall(words):
        if part.isascii() and part.isdecimal():
            yield language.label(part, last=False)
        elif part.isspace():
            yield language.pause
        elif part[0].isalnum():
            yield part if len(part.upper()) > len(part) else part.upper()
        elif part not in _UNSPOKEN:
            yield _name(part, words, language)


def _name(sign: str, words: str, language: Language) -> str:
    """The name of a sign."""
    if name := language.signs.get(sign) or language.operations.get(sign):
        return name
    if currency := language.currencies.get(sign):
        return currency.one
    named = " ".join(language.signs)
    raise _refusal(words, "characters", f"letters, digits and signs that have names: {named}")


def _digits(words: str, _form: str, language: Language) -> str:
    if not _DIGITS.fullmatch(words):
        raise _refusal(words, "digits", "digits, which may have spaces, dots or hyphens between them")
    groups = [language.label(group, last=False) for group in re.findall("[0-9]+", words)]
    return f"{language.pause}{language.space}".join(groups)


def _cardinal(words: str, _form: str, language: Language) -> str:
    found = _numeral(language).fullmatch(words)
    if found:
        return _number(found, language)
    if value := word.roman_value(words):
        return language.cardinal(str(value))
    raise _refusal(words, "cardinal", "a number as the language writes it, such as 1250")


@cache
def _numeral(language: Language) -> re.Pattern[str]:
    return re.compile(rf"(?P<sign>[-−+]?)\s?(?P<number>{language.numerals.pattern})")


def _number(found: re.Match[str], language: Language) -> str:
    """A number in words, without the zeros before it."""
    written = language.numerals.parse(found["number"])
    whole = written.whole.lstrip("0") or "0"
    numeral = Numeral(whole, written.fraction, found["sign"] in ("-", "−"))
    plus = f"{language.plus}{language.space}" if found["sign"] == "+" else ""
    return plus + language.number(numeral)


def _ordinal(words: str, _form: str, language: Language) -> str:
    said = said_whole(words, language, language.ordinals)
    if said is not None:
        return said
    found = _ORDINAL.fullmatch(words)
    value = int(found[1]) if found else word.roman_value(words)
    if not value:
        raise _refusal(words, "ordinal", "a whole number from 1 to 999999999, such as 3 or 3rd")
    return language.ordinal(value)


def _fraction(words: str, _form: str, language: Language) -> str:
    found = _FRACTION.fullmatch(words)
    if not found or not int(found[3]):
        raise _refusal(words, "fraction", "two whole numbers with a stroke, such as 3/4 or 1 1/2")
    fraction = language.fraction(int(found[2]), int(found[3]))
    return language.mixed(language.cardinal(found[1]), fraction) if found[1] else fraction


def _unit(words: str, _form: str, language: Language) -> str:
    said = said_whole(words, language, chinese.measure.read if language.tag == "zh" else measure.read)
    said = said or say_as_dates.length(words, language) or _amount(words, language)
    if said is None:
        raise _refusal(words, "unit", "an amount of a unit, such as 5 km")
    return said


def _telephone(words: str, _form: str, language: Language) -> str:
    reads = chinese.code.read if language.tag == "zh" else telephone.read
    said = said_whole(words, language, reads)
    if said is not None:
        return said
    if not _TELEPHONE.fullmatch(words):
        raise _refusal(words, "telephone", "digits, which may have a plus before them and be in groups")
    return telephone.groups(words, Place(words, 0, language))


def _currency(words: str, form: str, language: Language) -> str:
    said = said_whole(words, language, chinese.money.read if language.tag == "zh" else money.read)
    if said is not None:
        return said
    found = _numeral(language).fullmatch(words)
    currency = language.currencies.get(form.upper())
    if found and currency:
        return language.money(language.numerals.parse(found["sign"] + found["number"]), currency)
    said = _amount(words, language)
    if said is None:
        raise _refusal(words, "currency", "an amount with its sign or code, such as $5.20 or 5.20 USD")
    return said


def _amount(words: str, language: Language) -> str | None:
    """A number and the words that it counts; None where the words are something else."""
    if not _AMOUNT.fullmatch(words):
        return None
    said = _address(words, "", language)
    return None if re.search("[0-9]", said) else said


def _address(words: str, _form: str, language: Language) -> str:
    """Words that are read as any text is."""
    return _reader(language)(words)


@cache
def _reader(language: Language) -> FormReader:
    return FormReader(language)


_KINDS: dict[str, Callable[[str, str, Language], str]] = {
    "characters": _characters,
    "verbatim": _characters,
    "spell-out": _characters,
    "digits": _digits,
    "cardinal": _cardinal,
    "number": _cardinal,
    "ordinal": _ordinal,
    "fraction": _fraction,
    "unit": _unit,
    "date": say_as_dates.date,
    "time": say_as_dates.time,
    "telephone": _telephone,
    "currency": _currency,
    "address": _address,
}
