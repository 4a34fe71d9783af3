"""Russian: words and habits."""

from __future__ import annotations

import re
from functools import cached_property

from cosyvoice_runtime.text.reading.languages import russian_cases
from cosyvoice_runtime.text.reading.languages import russian_tables as tables
from cosyvoice_runtime.text.reading.languages.european import ALONE, European
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Date, Unit, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


class Russian(European):
    """Russian: words agree as after one, after two to four, and after more; numbers are in the nominative."""

    tag = "ru"
    minus, plus, point, dot, to, by, root = "минус", "плюс", "запятая", "точка", "–", "на", "корень из"
    small, month_words, months = tables.SMALL, tables.MONTH_WORDS, tables.MONTHS
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    abbreviations = tables.ABBREVIATIONS
    glued_units = ("x",)
    between, ratio_word, out_of_word, over_word, per_word = "и", "на", "из", "на", ""
    squared, cubed, power_word = "в квадрате", "в кубе", "в степени"
    before_code = (
        "ПИН|PIN|код|пароль|индекс|рейс|ИНН|БИК",
        "счёт|счет|карта|номер|заказ|тел\\.?|телефон|факс|звон[а-я]*(?: по)?",
        "звон[а-я]*(?: по)?|номер|набер[а-я]*",
    )
    before_result = "счёт|счет|побед|выигр|проигр|обыгр|матч|уступ|разгром"
    short_weekdays = tables.SHORT_WEEKDAYS
    before_rating = ("оценка", "рейтинг")
    after_day = "(?:-?го)?"
    date_patterns = (
        ALONE + r"{day}(?:-?го|-?е)? {month}(?!\w)(?: {year}(?: года?(?!\w)| ?г\.?(?!\w))?)?",
        ALONE + r"{day}\.{number}\.{short}(?: года?(?!\w)| ?г\.?(?!\w))?",
        r"\b{month} {year}(?: года?(?!\w)| ?г\.?(?!\w))?",
    )

    @cached_property
    def month_names(self) -> frozenset[str]:
        return frozenset(name for name in self.months if len(name) > 4 or name in tables.SHORT_MONTHS)

    def spell(self, number: int, gender: str = "") -> str:
        if not number:
            return "ноль"
        words = []
        for power, forms in reversed(list(enumerate(tables.LARGE, 1))):
            if group := number // 1000**power % 1000:
                name = _plural(group, *forms)
                words.append(
                    name if group == 1 else f"{_below_thousand(group, 'f' if power == 1 else '')} {name}"
                )
        if group := number % 1000:
            words.append(_below_thousand(group, gender))
        return " ".join(words)

    def decimals(self, digits: str) -> str:
        return self.digits(digits)

    def number(self, numeral: Numeral, gender: str = "") -> str:
        digits = numeral.fraction
        if digits is None or len(digits) > 3:
            return super().number(numeral, gender)
        whole, part = numeral.value, int(digits)
        name = tables.DECIMAL_PARTS[len(digits)]
        words = (
            self.spell(whole, "f"),
            "целая" if _ends_in_one(whole) else "целых",
            self.spell(part, "f"),
            f"{name}ая" if _ends_in_one(part) else f"{name}ых",
        )
        return " ".join([*([self.minus] if numeral.negative else []), *words])

    def form(self, numeral: Numeral, unit: Unit | Currency) -> str:
        few = unit.few or unit.many
        return _plural(numeral.value, unit.one, few, unit.many) if numeral.is_whole else few

    def of_scale(self, low: Numeral, high: Numeral | None, scale: str, currency: Currency) -> str:
        forms = tables.SCALE_FORMS.get(scale)
        last = high or low
        if not forms:
            return f"{self.ranged(self.number(low), self.number(last))} {self.form(last, currency)}"
        gender = "f" if scale == "тысяч" else "m"
        words = [self.number(last, gender)]
        if high is not None:
            words = [self.ranged(self.number(low, gender), words[0])]
        name = _plural(last.value, *forms) if last.is_whole else forms[1]
        return " ".join((*words, name, currency.many))

    def of_many(self, numbers: str, unit: Unit) -> str:
        return f"{numbers} {unit.many}"

    def gender_of(self, word: str, numeral: Numeral) -> str:
        ones, tens = numeral.value % 10, numeral.value // 10 % 10
        lower = word.lower()
        if tens == 1 or ones not in (1, 2) or lower in tables.NOT_COUNTED:
            return ""
        if ones == 2:
            return "f" if re.search(r"(?:[ыи]|ые|ие)$", lower) else ""
        if re.search(r"[аяыи]$", lower):
            return "f"
        if re.search(r"[аяеёиоуыэю][а-яё]*[ую]$", lower):
            return "accusative"
        return "n" if re.search(r"[оеё]$", lower) else ""

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:
        case = russian_cases.case_at(form, place)
        return ReadForm(form.end, russian_cases.declined(form.words, case)) if case else form

    def own(self, place: Place) -> ReadForm | None:
        if place.word_before in ("с", "со") and (found := place.match(_FIRST_DAY)):
            return ReadForm(found.end(), _ordinal(int(found[0]), "го"))
        if place.word_before in ("с", "со") and (found := place.match(_FIRST_YEAR)):
            return ReadForm(found.end(), _ordinal(int(found[0]), "го"))
        if found := place.match(_SECONDS):
            return ReadForm(found.end(), self.counted(self.numerals.parse(found[1]), self.units["сек"]))
        return russian_cases.shortened(place) or super().own(place)

    def to_one(self, parts: str) -> str:
        return f"один к {russian_cases.declined(parts, russian_cases.DATIVE)}"

    def days(self, first: str, between: str, last: str) -> str:  # noqa: ARG002
        return f"с {first.split('/')[0]} по {last.split('/')[1]}"

    def ratio(self, one: str, other: str) -> str:
        return self.score(one, other) if {one, other} <= _SCORES else super().ratio(one, other)

    def score(self, one: str, other: str) -> str:
        return f"{one} {other}"

    def ordinal(self, number: int) -> str:
        return _ordinal(number, "й")

    def year(self, year: int) -> str:
        return self.spell(year)

    def day(self, day: int, before: str) -> str:
        return _ordinal(day, {"на": "е", "за": "е", "по": "е", "к": "му", "ко": "му"}.get(before, "го"))

    def date(self, date: Date) -> str:
        words = [self.day(date.day, date.before)] if date.day is not None else []
        words.append(date.name or self.month_words[date.month - 1])
        words += [f"{_ordinal(date.year, 'го')} года"] if date.year is not None else []
        return " ".join(words)

    def clock(self, clock: Clock) -> str:
        if clock.second is not None:
            amounts = (clock.hour, "ч"), (clock.minute, "мин"), (clock.second, "сек")
            return " ".join(self.counted(Numeral(str(count)), self.units[unit]) for count, unit in amounts)
        if not clock.minute:
            return self.counted(Numeral(str(clock.hour)), self.units["ч"])
        minute = f"{'ноль ' if clock.minute < 10 else ''}{self.spell(clock.minute)}"
        return " ".join([self.spell(clock.hour), minute, *clock.zone])

    def fraction(self, numerator: int, denominator: int) -> str:
        end = "я" if _ends_in_one(numerator) else "х"
        return f"{self.spell(numerator, 'f')} {_ordinal(denominator, end)}"

    def fraction_of(self, fraction: str, unit: Unit, mixed: bool) -> str:  # noqa: ARG002
        return f"{fraction} {unit.few or unit.many}"

    def out_of(self, got: str, most: str) -> str:
        return f"{got} из {tables.GENITIVES.get(most, most)}"

    def per(self, words: str, unit: Unit) -> str:
        if unit.one.startswith("за ") and not _PAID.search(words):
            return f"{words} на {unit.one.removeprefix('за ')}"
        return f"{words} {unit.one}"

    def ordinals(self, place: Place) -> ReadForm | None:
        if found := place.match(_WITH_ENDING):
            end = "ые" if place.text.startswith(" годы", found.end()) else tables.ENDINGS[found[2]]
            return ReadForm(found.end(), _ordinal(int(found[1]), end))
        if found := place.match(_BEFORE_ERA):
            words = ("м", "году") if place.word_before in ("в", "во") else ("й", "год")
            return ReadForm(found.end(), f"{_ordinal(int(found[1]), words[0])} {words[1]} ")
        if found := place.match(_OF_YEAR):
            word = found[2]
            if word.startswith("г") and len(word.rstrip(".")) == 1:
                word = {"в": "году", "во": "году"}.get(place.word_before, "год")
                word = "года" if russian_cases.takes_genitive(place) else word
            return ReadForm(found.end(), f"{_ordinal(int(found[1]), tables.YEAR_ENDINGS[word])} {word}")
        if found := place.match(_GRAMS):
            return ReadForm(found.end(), self.counted(self.numerals.parse(found[1]), tables.GRAM))
        found = place.match(_CENTURY)
        if found and found[1] in tables.ROMAN:
            end = tables.YEAR_ENDINGS.get(found[2].replace("век", "год"), "й")
            return ReadForm(found.end(1), _ordinal(tables.ROMAN.index(found[1]) + 1, end))
        return None

    def abbreviation(self, word: str, following: str) -> str | None:
        return "номер" if word == "No" and following.isdecimal() else None

    def roman(self, before: str, value: int) -> str | None:
        if before in tables.RULERS:
            return _ordinal(value, "я" if before in tables.QUEENS else "й")
        return self.spell(value) if before in tables.BEFORE_ROMAN else None


_SCORES = frozenset(tables.SMALL[:13])
_PAID = re.compile("рубл|копе|доллар|евро|цент|фунт|юан|иен|тенге|грив|франк|рупи")
_BEFORE_ERA = re.compile(r"(?<![\w.,-])([0-9]{1,4}) г\.? (?=до н)")
_FIRST_YEAR = re.compile(r"(?<![\w.,-])[12][0-9]{3}(?= (?:по|до) [12][0-9]{3} г)")
_SECONDS = re.compile(r"(?<![\w.,:])([0-9]{1,6}(?:,[0-9]{1,3})?) с(?=[.,;)]|\Z)")
_FIRST_DAY = re.compile(
    rf"(?<![\w.,-])[0-9]{{1,2}}(?= (?:по|до) [0-9]{{1,2}} {alternatives(tables.MONTHS)}(?!\w))"
)
_WITH_ENDING = re.compile(
    rf"(?<![\w.,])([0-9]{{1,4}})-?({'|'.join(sorted(tables.ENDINGS, key=len, reverse=True))})(?!\w)"
)
_OF_YEAR = re.compile(r"(?<![\w.,-])([12][0-9]{3}) ?(год(?:а|у|ом|е)?(?!\w)|(?<= )г\.?(?!\w)|г\.(?!\w))")
_GRAMS = re.compile(r"(?<![\w.,])([0-9]{1,6}(?:,[0-9]{1,3})?)\s?г(?!\w)")
_CENTURY = re.compile(r"(?<!\w)([IVX]{1,5})(?= (век(?:а|у|ом|е)?)(?!\w))")


def _ends_in_one(number: int) -> bool:
    return number % 10 == 1 and number % 100 != 11


def _plural(number: int, one: str, few: str, many: str) -> str:
    """The form of a word after a number."""
    if number % 100 in range(11, 15):
        return many
    return {1: one, 2: few, 3: few, 4: few}.get(number % 10, many)


def _ordinal(number: int, end: str) -> str:
    """An ordinal by the end of its short form: ``5-го`` is пятого."""
    rest = (
        number % 100 if number % 100 and number % 100 <= 20 else number % 10 or number % 100 or number % 1000
    )
    if rest and (word := tables.ORDINALS.get(rest)):
        before = [RUSSIAN.spell(number - rest)] if number > rest else []
    elif number in tables.ORDINALS:
        before, word = [], tables.ORDINALS[number]
    elif number and number % 1000 == 0 and number < 10**6:
        before, word = [], f"{RUSSIAN.spell(number // 1000).replace(' ', '')}тысячный"
    else:
        return RUSSIAN.spell(number)
    if word == "третий":
        return " ".join([*before, tables.THIRD[end]])
    return " ".join([*before, word if end == "й" else word[:-2] + tables.ADJECTIVES[end]])


def _below_thousand(number: int, gender: str) -> str:
    hundreds, rest = divmod(number, 100)
    words = [tables.HUNDREDS[hundreds - 1]] if hundreds else []
    if rest >= 20:
        words.append(tables.TENS[rest // 10 - 2])
        rest %= 10
    if rest:
        words.append(tables.GENDERS.get((rest, gender), tables.SMALL[rest]))
    return " ".join(words)


RUSSIAN = Russian()
