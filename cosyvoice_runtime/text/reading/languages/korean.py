"""Korean: words and habits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cosyvoice_runtime.text.reading.languages import korean_tables as tables
from cosyvoice_runtime.text.reading.languages.east_asian import (
    LONGEST,
    amount,
    below_ten_thousand,
    groups_of_four,
)
from cosyvoice_runtime.text.reading.languages.korean_forms import FORMS, agreed, ends_in_consonant
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Date, Language, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

_DIGITS = "영일이삼사오육칠팔구"
_TENS = "십백천"
_SCALES = ["", "만", "억", "조", "경"]
_NATIVE_TENS = ["", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔"]
_NATIVE = ["", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉"]


class Korean(Language):
    """Korean: Sino-Korean numbers, and native ones before the counters that take them."""

    tag = "ko"
    minus, plus, point, to, by, root = "마이너스", "플러스", "점", "에서", "곱하기", "루트"
    country_code = "국가번호"
    space_before_word = ""
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    glued_units = ("A", "in", "t", "h", "N", "J", "B", "s", "cc", "l", "bar")
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    halves: Mapping[str, str] = {"am": "오전", "pm": "오후"}
    long_run = LONGEST + 1
    before_code = (
        "(?:비밀|인증|우편|계좌|카드|주민등록|사업자등록|운송장|주문|예약|접수|보안|확인) ?번호(?:는|가|:)?"
        "|암호(?:는|:)?|PIN|OTP|코드(?:는|:)?|끝자리|네 ?자리|ISBN",
        "번호(?:는|가|:)?",
        "전화(?:는|:)?",
    )

    def cardinal(self, digits: str) -> str:
        if len(digits) > LONGEST or (digits.startswith("0") and len(digits) > 1):
            return self.telephone_digits(digits)
        return cardinal(digits)

    def digits(self, digits: str) -> str:
        return "".join(_DIGITS[int(digit)] for digit in digits)

    def telephone_digits(self, digits: str) -> str:
        return self.digits(digits).replace("영", "공")

    def number(self, numeral: Numeral) -> str:
        minus = f"{self.minus} " if numeral.negative else ""
        whole = self.cardinal(numeral.whole or "0")
        return f"{minus}{whole}" + ("" if numeral.fraction is None else f"점{self.digits(numeral.fraction)}")

    def native(self, number: int) -> str:
        """A number before a counter that takes native ones; Sino-Korean from one hundred on."""
        if not 0 < number < 100:
            return cardinal(str(number))
        if number == 20:
            return "스무"
        return _NATIVE_TENS[number // 10] + _NATIVE[number % 10]

    def ordinal(self, number: int) -> str:
        return "첫번째" if number == 1 else f"{self.native(number)}번째"

    def year(self, year: int) -> str:
        return cardinal(str(year))

    def month(self, month: int) -> str:
        """A month; the sixth and the tenth have names of their own."""
        return {6: "유월", 10: "시월"}.get(month) or f"{cardinal(str(month))}월"

    def date(self, date: Date) -> str:
        parts = [] if date.year is None else [f"{self.year(date.year)}년"]
        parts.append(self.month(date.month))
        if date.day is not None:
            parts.append(f"{cardinal(str(date.day))}일")
        return " ".join(parts)

    def hour(self, hour: int) -> str:
        """An hour: native up to twelve."""
        return f"{self.native(hour) if hour <= 12 else cardinal(str(hour))}시"

    def clock(self, clock: Clock) -> str:
        parts = [clock.zone, clock.half, self.hour(clock.hour)]
        if clock.minute or clock.second:
            parts.append(f"{cardinal(str(clock.minute))}분")
        if clock.second:
            parts.append(f"{cardinal(str(clock.second))}초")
        return " ".join(filter(None, parts))

    def fraction(self, numerator: int, denominator: int) -> str:
        return f"{cardinal(str(denominator))}분의 {cardinal(str(numerator))}"

    def mixed(self, whole: str, fraction: str) -> str:
        return f"{whole}{'과' if ends_in_consonant(whole) else '와'} {fraction}"

    def money(self, numeral: Numeral, currency: Currency) -> str:
        return amount(self, numeral, currency)

    def counted(self, numeral: Numeral, unit: Unit | Currency) -> str:
        if numeral.negative and unit.one == tables.DEGREE:
            return f"영하 {self.number(replace(numeral, negative=False))} {unit.one}"
        return f"{self.number(numeral)}{'' if unit.one == '원' else ' '}{unit.one}"

    def per(self, words: str, unit: Unit) -> str:
        speed = tables.SPEEDS.get(unit.one) if words.endswith("미터") else None
        return f"{speed} {words}" if speed else f"{words} 퍼 {unit.one}"

    def ratio(self, one: str, other: str) -> str:
        return f"{one} 대 {other}"

    def out_of(self, got: str, most: str) -> str:
        return f"{most}점 만점에 {got}점"

    def over(self, one: str, other: str) -> str:
        return f"{one}에 {other}"

    def pressure(self, digits: str) -> str:
        return cardinal(digits)

    def power(self, exponent: str, plain: bool = False) -> str:
        if exponent in ("2", "3") and not plain:
            return "제곱" if exponent == "2" else "세제곱"
        minus = f"{self.minus} " if exponent.startswith("-") else ""
        digits = exponent.lstrip("-")
        return f"의 {minus}{self.cardinal(digits) if digits.isdecimal() else digits}제곱"

    def ranged(self, low: str, high: str) -> str:
        return f"{low}에서 {high}"

    def of_scale(self, low: Numeral, high: Numeral | None, scale: str, currency: Currency) -> str:
        number = self.number(low) if high is None else self.ranged(self.number(low), self.number(high))
        return f"{number}{scale} {currency.one}"

    def feet(self, feet: int, inches: int) -> str:
        return f"{cardinal(str(feet))} 피트 {cardinal(str(inches))} 인치"

    def spanned(self, low: str, high: str) -> str:
        return f"{low}부터 {high}"

    def space_after_word(self, before: str, words: str) -> str:
        return "" if before.endswith("제") or words.startswith(("부터", "에서", "은 ", "는 ")) else " "

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:
        return agreed(form, place.text)

    def label(self, label: str, last: bool) -> str:
        return tables.ADDRESS_WORDS.get(label.lower()) or super().label(label, last)

    def abbreviation(self, word: str, following: str) -> str | None:
        return "넘버" if word in ("No", "no") and following.isdecimal() else None

    def own(self, place: Place) -> ReadForm | None:
        return first(FORMS, place, self)


def cardinal(digits: str) -> str:
    """A whole number of at most :data:`LONGEST` digits."""
    groups = groups_of_four(digits)
    words = ""
    for place, group in reversed(list(enumerate(groups))):
        if group:
            first = not words
            spoken = below_ten_thousand(group, _DIGITS, _TENS, "천")
            words += ("" if group == 1 and place == 1 and first else spoken) + _SCALES[place]
    return words or _DIGITS[0]


KOREAN = Korean()
