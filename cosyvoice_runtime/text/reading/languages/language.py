"""A language gives the classes of written forms its words, and the forms that only it has."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cosyvoice_runtime.text.reading.languages.numeral import Numeral, Numerals
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


class Unit(NamedTuple):
    """A unit of measurement: words for one, for more, its gender, and words for a few where they differ."""

    one: str
    many: str
    gender: str = ""
    few: str = ""


class Currency(NamedTuple):
    """A currency: words for one and for more, and for its hundredths; empty where it has none.

    Genders and the words for a few are given where a language has them.
    """

    one: str
    many: str
    cent: str = ""
    cents: str = ""
    gender: str = ""
    few: str = ""
    cent_gender: str = ""
    few_cents: str = ""


@dataclass(frozen=True)
class Date:
    """A date of which at least the month is known.

    Attributes:
        month: 1 to 12.
        day: 1 to 31, or None.
        year: None where it is not given.
        day_first: whether it is written with the day before the month.
        name: the month as it is written, where it is a word.
        comma: whether a comma stands before the year.
        weekday: before it, as it is written, or empty.
        before: the word before it in small letters, or empty.
    """

    month: int
    day: int | None = None
    year: int | None = None
    day_first: bool = False
    name: str = ""
    comma: bool = False
    weekday: str = ""
    before: str = ""


@dataclass(frozen=True)
class Clock:
    """A time of day.

    Attributes:
        hour: 0 to 24.
        minute: 0 to 59.
        second: None where it is not given.
        half: ``am``, ``pm`` or empty.
        zone: letters of a time zone, or empty.
    """

    hour: int
    minute: int = 0
    second: int | None = None
    half: str = ""
    zone: str = ""


class Language(ABC):
    """Words and habits of a language; without state. What a language lacks, its classes of forms leave alone.

    Attributes:
        tag: its primary subtag.
        space: what separates two words.
        pause: the mark that makes a short pause.
        numerals: how it writes numbers.
        decimal_mark: the mark before a fraction.
        spaces_begin_forms: whether a space before a word or number may begin a form.
        month_first: whether ``5/6/2024`` is the sixth of May.
        falling_ranges: whether ``3-1`` is a range, too; elsewhere it is two numbers.
        months: names and abbreviations in small letters.
        weekdays: the same, of the days of a week.
        date_patterns: sources of its dates in words, with ``{day}``, ``{month}`` and ``{year}``;
            ``{number}`` is a month in digits, and ``{short}`` a year that may have two.
        after_day: source of what may stand right after the first day of a range.
        clock_patterns: sources of times that only it writes, with groups as the times of all have them.
        halves: of a day, as they are written without dots and spaces, and their words.
        units: of measurement, as they are written.
        per_units: what an amount may be for each of, after a stroke.
        glued_units: those of them that only count right after their number, since they are words, too.
        hyphen_units: those that a hyphen may join to their number: ``10-km``.
        formula_units: those that count after a space only where a formula ends.
        time_units: those that make durations, as they are written.
        after_minutes: words after which ``m`` is minutes.
        currencies: by sign or code.
        scales: what multiplies an amount, as it is written, and its word.
        signs: of addresses, and their words; that of ``&`` also stands between words.
        abbreviations: as they are written, and their words.
        signs_before: of numbers, and their words.
        operations: of formulae, and their words.
        before_code: sources of the words after which digits are a code: always, if they are many, and
            those after which three digits are called.
        before_rating: words after which two numbers with a stroke are a mark.
        before_year: words after which a number from 1000 on is a year.
        before_pairs: words after which a number is read in pairs: ``Boeing 737``.
        long_run: digits from which a run without marks is read digit by digit.
        speaks_scheme: whether ``https://`` is spoken.
        dot: the word for a dot between the parts of a version; as ``point`` where it is empty.
        minus, plus, point, to, by, root: words.
        letters: names of letters of other alphabets in formulae.
    """

    tag: str
    space = " "
    pause = ","
    numerals = Numerals()
    decimal_mark = "."
    spaces_begin_forms = True
    month_first = False
    falling_ranges = True
    months: Mapping[str, int] = {}
    weekdays: Collection[str] = ()
    date_patterns: Sequence[str] = ()
    after_day = "(?:st|nd|rd|th)?"
    clock_patterns: Sequence[str] = ()
    halves: Mapping[str, str] = {}
    units: Mapping[str, Unit] = {}
    per_units: Mapping[str, Unit] = {}
    glued_units: Collection[str] = ()
    hyphen_units: Collection[str] = ()
    formula_units: Mapping[str, Unit] = {}
    time_units: Mapping[str, Unit] = {}
    after_minutes: Sequence[str] = ()
    currencies: Mapping[str, Currency] = {}
    scales: Mapping[str, str] = {}
    signs: Mapping[str, str] = {}
    abbreviations: Mapping[str, str] = {}
    signs_before: Mapping[str, str] = {}
    operations: Mapping[str, str] = {}
    before_code: Sequence[str] = ()
    before_rating: Collection[str] = ()
    before_year: Collection[str] = ()
    before_pairs: Collection[str] = ()
    long_run = 10
    speaks_scheme = False
    dot = ""
    minus: str
    plus: str
    point: str
    to: str
    by: str
    root: str
    letters: Mapping[str, str] = {}

    @abstractmethod
    def cardinal(self, digits: str) -> str:
        """A whole number; a very long one, or one with a leading zero, digit by digit."""

    @abstractmethod
    def digits(self, digits: str) -> str:
        """Digit by digit."""

    @abstractmethod
    def ordinal(self, number: int) -> str:
        """The place in an order."""

    @abstractmethod
    def year(self, year: int) -> str:
        """A year."""

    @abstractmethod
    def date(self, date: Date) -> str:
        """A date."""

    @abstractmethod
    def clock(self, clock: Clock) -> str:
        """A time of day."""

    @abstractmethod
    def fraction(self, numerator: int, denominator: int) -> str:
        """A fraction."""

    @abstractmethod
    def mixed(self, whole: str, fraction: str) -> str:
        """A whole number, in words, and a fraction."""

    @abstractmethod
    def money(self, numeral: Numeral, currency: Currency) -> str:
        """An amount without a scale."""

    @abstractmethod
    def per(self, words: str, unit: Unit) -> str:
        """An amount for each unit."""

    @abstractmethod
    def ratio(self, one: str, other: str) -> str:
        """Two numbers with a colon between them."""

    @abstractmethod
    def out_of(self, got: str, most: str) -> str:
        """A mark out of a total."""

    @abstractmethod
    def over(self, one: str, other: str) -> str:
        """A blood pressure."""

    @abstractmethod
    def pressure(self, digits: str) -> str:
        """A number of a blood pressure."""

    @abstractmethod
    def power(self, exponent: str, plain: bool = False) -> str:
        """The words after the base of a power; ``plain`` that of a number such as 3e10."""

    def folded(self, text: str) -> str:
        """The text in which forms are looked for: as long, its variants of characters alike."""
        return text

    def number(self, numeral: Numeral) -> str:
        """A number with its sign and its fraction."""
        words = [self.minus] if numeral.negative else []
        words += [self.cardinal(numeral.whole)] if numeral.whole else []
        if numeral.fraction is not None:
            words += [self.point, self.digits(numeral.fraction)]
        return self.space.join(words)

    def number_before(self, numeral: Numeral, place: Place, end: int) -> str:  # noqa: ARG002
        """A number at a place that agrees with the text that follows its end."""
        return self.number(numeral)

    def of_scale(self, low: Numeral, high: Numeral | None, scale: str, currency: Currency) -> str:
        """An amount, or a range of amounts, of a scale in words, which may be empty for a range."""
        number = self.number(low) if high is None else self.ranged(self.number(low), self.number(high))
        return self.space.join(filter(None, (number, scale, currency.many)))

    def counted(self, numeral: Numeral, unit: Unit | Currency) -> str:
        """A number of units."""
        return f"{self.number(numeral)}{self.space}{unit.one if numeral.is_one else unit.many}"

    def range_of(self, low: Numeral, high: Numeral, unit: Unit) -> str:
        """A range of numbers of a unit."""
        return self.of_many(self.ranged(self.number(low), self.number(high)), unit)

    def of_many(self, numbers: str, unit: Unit) -> str:
        """A range of numbers, in words, of a unit."""
        return f"{numbers}{self.space}{unit.many}"

    def ranged(self, low: str, high: str) -> str:
        """A range, its ends in words."""
        return f"{low}{self.space}{self.to}{self.space}{high}"

    def grouped(self, groups: Sequence[str]) -> str:
        """Groups of digits, each in words, as in telephone numbers."""
        return f"{self.pause}{self.space}".join(groups)

    @property
    def country_code(self) -> str:
        """The word before the country's digits of a telephone number."""
        return self.plus

    @property
    def space_before_word(self) -> str:
        """The space between a form and letters that follow it at once."""
        return self.space

    def space_after_word(self, before: str, words: str) -> str:  # noqa: ARG002
        """The space between the letters right before a form and its words."""
        return self.space

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:  # noqa: ARG002
        """A form at a place as the words before it ask, with letters after it that depend on its sound."""
        return form

    def governor(self, place: Place) -> str:
        """The word before a date that says how it is spoken, in small letters."""
        return place.word_before

    def currency(self, sign: str, place: Place) -> Currency:  # noqa: ARG002
        """The currency of a sign, which may be that of several countries."""
        return self.currencies[sign]

    def own(self, place: Place) -> ReadForm | None:  # noqa: ARG002
        """A form that no other language has, or that it reads by signs of its own."""
        return None

    def spanned(self, low: str, high: str) -> str:
        """A span of time, its ends in words."""
        return self.ranged(low, high)

    def telephone_digits(self, digits: str) -> str:
        """Digit by digit, as in telephone numbers."""
        return self.digits(digits)

    def ordinal_day(self, day: int) -> str:
        """The second day of a range of days."""
        return self.ordinal(day)

    def first_day(self, day: int) -> str:
        """The first day of a range of days before their month."""
        return self.ordinal(day)

    def name_number(self, digits: str) -> str:
        """A number in a name such as MP3."""
        return self.cardinal(digits)

    def fraction_of(self, fraction: str, unit: Unit, mixed: bool) -> str:
        """A fraction in words, or a whole number and one, of a unit."""
        return f"{fraction}{self.space}{unit.many if mixed else unit.one}"

    def label(self, label: str, last: bool) -> str:  # noqa: ARG002
        """Letters and digits between two signs of an address; ``last`` where a domain or a path ends."""
        pieces = re.findall("[A-Za-z]+|[0-9]+", label)
        return self.space.join(self.digits(piece) if piece.isdecimal() else piece for piece in pieces)

    def feet(self, feet: int, inches: int) -> str:
        """A height in feet and inches."""
        return f"{self.cardinal(str(feet))}{self.space}{self.cardinal(str(inches))}"

    def decades(self, place: Place) -> ReadForm | None:  # noqa: ARG002
        """A decade as the language writes it."""
        return None

    def ordinals(self, place: Place) -> ReadForm | None:  # noqa: ARG002
        """An ordinal as the language writes it."""
        return None

    def address(self, place: Place) -> ReadForm | None:  # noqa: ARG002
        """A part of a street address as the language writes it."""
        return None

    def counts(self, place: Place, end: int) -> bool:  # noqa: ARG002
        """Whether a number that could be a year, and ends there, counts something."""
        return False

    def puts_month_first(self, place: Place) -> bool:  # noqa: ARG002
        """Whether the first number of ``5/6/2024`` is the month in this text."""
        return self.month_first

    def is_amount(self, place: Place, end: int) -> bool:  # noqa: ARG002
        """Whether what follows a number that ends there says that it counts or measures, and is no name."""
        return False

    def qualifies(self, place: Place, end: int) -> bool:  # noqa: ARG002
        """Whether an amount that ends there belongs to the noun after it, as in ``a $5 bill``."""
        return False

    def quality(self, currency: Currency) -> Currency:
        """A currency in the form that it has before a noun."""
        return currency._replace(many=currency.one)

    def pairs(self, digits: str) -> str:
        """A number in pairs of digits: 737 is seven thirty-seven."""
        head, tail = digits[:-2], digits[-2:]
        return f"{self.cardinal(head)}{self.space}{self.cardinal(tail)}"

    def abbreviation(self, word: str, following: str) -> str | None:  # noqa: ARG002
        """The words for a word with a dot after it; None where the dot stays."""
        return None

    def roman(self, before: str, value: int) -> str | None:  # noqa: ARG002
        """The words for a Roman number after a word; None where it is none."""
        return None

    @cached_property
    def month_names(self) -> Collection[str]:
        """The full names of months: the first of each number."""
        return {
            next(name for name, other in self.months.items() if other == number)
            for number in self.months.values()
        }

    @cached_property
    def month_pattern(self) -> str:
        return alternatives(self.months)


def alternatives(written: Iterable[str]) -> str:
    """Source of a regular expression for one of several forms, the longest first, without groups."""
    return "(?:" + "|".join(re.escape(form) for form in sorted(written, key=len, reverse=True)) + ")"
