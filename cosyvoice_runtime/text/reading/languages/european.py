"""Languages of Europe other than English share commas before fractions, and numbers that agree."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from cosyvoice_runtime.text.reading.languages import european_forms
from cosyvoice_runtime.text.reading.languages.language import Currency, Date, Language, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral, Numerals
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

ALONE = r"(?<![\w.,:/-])"
"""Nothing of a number stands before."""
HOUR = r"(?P<hour>[01]?[0-9]|2[0-4])"
MINUTE = r"(?P<minute>[0-5][0-9])"
SECOND = r"(?P<second>[0-5][0-9])"
"""Groups of times."""

_LONGEST = 27
"""Digits of the longest number that scales have words for."""
_MILLION = 10**6
_ONE_HALF = re.compile("u[nm] me(?:dio|io|zzo)")
_NEXT_WORD = re.compile(r"[ \u00a0]([^\W\d_]+)")


class European(Language):
    """A language that writes ``1.234,5`` or ``1 234,5``, and whose numbers may agree with what they count.

    Attributes:
        small: the numbers from zero on that have words of their own.
        month_words: names of the months.
        known_labels: parts of addresses that are spoken as the words given here.
        of: between millions and what they count, or empty.
        cents_after: between an amount and its hundredths, or empty.
        half: the word for a half of something masculine, where it agrees and no article stands before it.
        between: of a fraction after a whole number.
        ratio_word, out_of_word, over_word, per_word: between two numbers, and before a unit.
        squared, cubed, power_word: of powers.
        before_result: source of the beginnings of words after which two numbers with a colon are no time.
        spells_postcodes: whether five digits of a town are read digit by digit.
        single_scales: the words for one of each scale, by that for more.
        short_weekdays: in small letters without their dots, and their words.
        of_year: between a number of a law and its year, or empty.
        own_forms: readers of the forms of this language alone.
    """

    numerals = Numerals(group=". '’", decimal=",", dotted=True)
    decimal_mark = ","
    long_run = 11
    speaks_scheme = True
    small: Sequence[str]
    month_words: Sequence[str]
    known_labels: Mapping[str, str] = {}
    of = ""
    cents_after = ""
    half = ""
    of_year = ""
    short_weekdays: Mapping[str, str] = {}
    between: str
    ratio_word: str
    out_of_word: str
    over_word: str
    per_word: str
    squared: str
    cubed: str
    power_word: str
    before_result = "(?!)"
    spells_postcodes = False
    single_scales: Mapping[str, str] = {}
    own_forms: Sequence[Callable[..., ReadForm | None]] = ()

    def own(self, place: Place) -> ReadForm | None:
        return first((*self.own_forms, *european_forms.FORMS), place, self)

    @abstractmethod
    def spell(self, number: int, gender: str = "") -> str:
        """A whole number below 10**27 in words; ``gender`` is empty where nothing is counted."""

    def decimals(self, digits: str) -> str:
        """The digits after the decimal mark: few as one number, after its zeros."""
        zeros = len(digits) - len(digits.lstrip("0"))
        if len(digits) - zeros > 3 or zeros == len(digits):
            return self.digits(digits)
        return " ".join([self.small[0]] * zeros + [self.spell(int(digits))])

    @abstractmethod
    def day(self, day: int, before: str) -> str:
        """The day of a month after a word."""

    def gender_of(self, word: str, numeral: Numeral) -> str:  # noqa: ARG002
        """The gender of a word that a number counts, as far as the word shows it; empty where it is none."""
        return ""

    def cardinal(self, digits: str) -> str:
        return self._whole(digits, "")

    def digits(self, digits: str) -> str:
        return " ".join(self.small[int(digit)] for digit in digits)

    def year(self, year: int) -> str:
        return self.spell(year)

    def number(self, numeral: Numeral, gender: str = "") -> str:
        words = [self.minus] if numeral.negative else []
        words.append(self._whole(numeral.whole or "0", gender if numeral.is_whole else ""))
        if numeral.fraction is not None:
            words += [self.point, self.decimals(numeral.fraction)]
        return " ".join(words)

    def number_before(self, numeral: Numeral, place: Place, end: int) -> str:
        found = _NEXT_WORD.match(place.text, end) if numeral.is_whole else None
        return self.number(numeral, self.gender_of(found[1], numeral) if found else "")

    def form(self, numeral: Numeral, unit: Unit | Currency) -> str:
        """The word of a unit after a number."""
        return unit.one if numeral.is_one else unit.many

    def counted(self, numeral: Numeral, unit: Unit | Currency) -> str:
        words = self.form(numeral, unit)
        if numeral.is_whole and numeral.value >= _MILLION and numeral.value % _MILLION == 0:
            words = self.partitive(words)
        return f"{self.number(numeral, unit.gender or 'm')} {words}"

    def partitive(self, words: str) -> str:
        """The words that millions count."""
        return f"{self.of} {words}" if self.of else words

    def of_scale(self, low: Numeral, high: Numeral | None, scale: str, currency: Currency) -> str:
        if high is None:
            scale = self.single_scales.get(scale, scale) if low.is_one else scale
            number = self.number(low, self.gender_of(scale, low) or "m")
        else:
            number = self.ranged(self.number(low), self.number(high, currency.gender or "m"))
        return " ".join((number, scale, self.partitive(currency.many)) if scale else (number, currency.many))

    def money(self, numeral: Numeral, currency: Currency) -> str:
        fraction = (numeral.fraction or "").rstrip("0")
        if not fraction:
            return self.counted(replace(numeral, fraction=None, whole=numeral.whole or "0"), currency)
        if len(fraction) > 2 or not currency.cent:
            return self.counted(numeral, currency)
        cents = Unit(currency.cent, currency.cents, currency.cent_gender, currency.few_cents)
        parts = [self.counted(replace(numeral, fraction=None), currency)] if numeral.value else []
        if not parts and numeral.negative:
            parts = [self.minus]
        parts += [self.cents_after] if parts and self.cents_after and numeral.value else []
        parts.append(self.counted(Numeral(str(int(fraction.ljust(2, "0")))), cents))
        return " ".join(parts)

    def date(self, date: Date) -> str:
        words = [self.day(date.day, date.before)] if date.day is not None else []
        words.append(date.name or self.month_words[date.month - 1])
        words += [self.year(date.year)] if date.year is not None else []
        return (f" {self.of} " if self.dates_of else " ").join(words)

    dates_of = False
    """Whether ``of`` stands before the month and the year of a date."""

    def first_day(self, day: int) -> str:
        return self.day(day, "")

    def ordinal_day(self, day: int) -> str:
        return self.day(day, "")

    def mixed(self, whole: str, fraction: str) -> str:
        return f"{whole} {self.between} {self.half if _ONE_HALF.fullmatch(fraction) else fraction}"

    def fraction_of(self, fraction: str, unit: Unit, mixed: bool) -> str:
        if not self.half:
            return super().fraction_of(fraction, unit, mixed)
        if not fraction.endswith(self.half):
            return f"{fraction} {self.of} {unit.one}"
        words = fraction.removesuffix(self.half).removesuffix("un ").removesuffix("um ")
        half = f"{self.half[:-1]}a" if unit.gender == "f" else self.half
        return f"{words}{half} {unit.many if mixed else unit.one}"

    def per(self, words: str, unit: Unit) -> str:
        return " ".join(filter(None, (words, self.per_word, unit.one)))

    def ratio(self, one: str, other: str) -> str:
        return f"{one} {self.ratio_word} {other}"

    def days(self, first: str, between: str, last: str) -> str:
        """A span of weekdays."""
        return f"{first} {between} {last}"

    def to_one(self, parts: str) -> str:
        """The scale of a map."""
        return self.ratio(self.cardinal("1"), parts)

    def score(self, one: str, other: str) -> str:
        """The result of a match."""
        return self.ratio(one, other)

    def out_of(self, got: str, most: str) -> str:
        return f"{got} {self.out_of_word} {most}"

    def over(self, one: str, other: str) -> str:
        return f"{one} {self.over_word} {other}"

    def pressure(self, digits: str) -> str:
        return self.cardinal(digits)

    def power(self, exponent: str, plain: bool = False) -> str:
        if exponent in ("2", "3") and not plain:
            return self.squared if exponent == "2" else self.cubed
        words = [self.minus] if exponent.startswith("-") else []
        digits = exponent.lstrip("-")
        words.append(self.cardinal(digits) if digits.isdecimal() else digits)
        return " ".join((self.power_word, *words))

    def pairs(self, digits: str) -> str:
        return self.cardinal(digits)

    def label(self, label: str, last: bool) -> str:  # noqa: ARG002
        word = label.lower()
        if word in self.known_labels:
            return self.known_labels[word]
        if word in _DOMAINS or _SHORT_WORD.fullmatch(word):
            return word
        if label.isdecimal():
            return self.digits(label)
        if len(label) > 3 and label.isalpha() and re.search("[aeiouyAEIOUY]", label):
            return label
        return " ".join(self.digits(letter) if letter.isdecimal() else letter for letter in label)

    def _whole(self, digits: str, gender: str) -> str:
        if len(digits) > _LONGEST or (len(digits) > 1 and digits.startswith("0")):
            return self.digits(digits)
        return self.spell(int(digits), gender)


_SHORT_WORD = re.compile("[^aeiouy0-9][aeiou][^aeiouy0-9]|[aeiou][^aeiouy0-9][aeiou]")
_DOMAINS = frozenset({"com", "org", "net", "info", "gov", "edu", "app", "dev"})
_PREFIXED = {
    "m": "nµmcdk", "g": "µmk", "l": "µmcdh", "L": "mcd", "s": "nµm", "B": "kKMGTP", "bit": "kMG",
    "Hz": "kMGT",
    "W": "mkMGT", "Wh": "kMGT", "V": "mkM", "A": "mµ", "Ah": "m", "Pa": "hkM", "J": "kM", "cal": "k",
    "Ω": "kM",
    "N": "k", "mol": "m", "bar": "m",
}  # fmt: skip
_SQUARED = {"²": 2, "2": 2, "^2": 2, "³": 3, "3": 3, "^3": 3}


def units(
    words: Mapping[str, str],
    prefixes: Mapping[str, str],
    powers: Mapping[int, tuple[str, ...]],
    prefixed: Mapping[str, str] = _PREFIXED,
    lengths: Collection[str] = ("m", "km", "dm", "cm", "mm"),
) -> dict[str, Unit]:
    """Units by sign, those with prefixes and powers of lengths with them.

    Args:
        words: by signs with spaces between, the words for one and for more, the gender, the words for a few.
        prefixes: words by letter.
        powers: the forms of ``square`` and ``cubic`` with ``{}`` for the unit, for one, more and a few.
        prefixed: the letters that each sign may have before it.
        lengths: signs of which powers are made.
    """
    found: dict[str, Unit] = {}
    for signs, written in words.items():
        one, many, gender, few = (*written.split("/"), "", "")[:4]
        for sign in signs.split():
            unit = Unit(one, many, gender, few)
            found[sign.replace("_", " ")] = unit
            for letter in prefixed.get(sign, ""):
                before = prefixes[letter]
                found[letter + sign] = Unit(before + one, before + many, gender, few and before + few)
    for sign in lengths:
        unit = found[sign]
        for mark, power in _SQUARED.items():
            forms = powers[power]
            few = forms[2].format(unit.few) if len(forms) > 2 else ""
            found[sign + mark] = Unit(forms[0].format(unit.one), forms[1].format(unit.many), unit.gender, few)
    return found | {sign.replace("µ", "μ"): unit for sign, unit in found.items() if "µ" in sign}


def currencies(words: Mapping[str, tuple[str, str]]) -> dict[str, Currency]:
    """Currencies by sign, code or word: those for units and for hundredths, as units have them."""
    found = {}
    for signs, (whole, part) in words.items():
        one, many, gender, few = (*whole.split("/"), "", "")[:4]
        cent, cents, cent_gender, few_cents = (*part.split("/"), "", "", "")[:4]
        for sign in signs.split():
            found[sign] = Currency(one, many, cent, cents, gender, few, cent_gender, few_cents)
    return found


def months(names: Sequence[str], short: Mapping[str, int]) -> dict[str, int]:
    """Numbers of months by their names, the full ones first, and their abbreviations."""
    return {name: number for number, name in enumerate(names, 1)} | dict(short)


def listed(words: str) -> list[str]:
    """Words with spaces between."""
    return words.split()
