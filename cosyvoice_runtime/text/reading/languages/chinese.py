"""Chinese: words and habits."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.chinese_scripts import SIMPLIFIED, in_script_of
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Date, Language, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

LONGEST = 16
"""Digits of the longest cardinal."""
_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_TELEPHONE_DIGITS = str.maketrans("0123456789", "零幺二三四五六七八九")
_WEEKDAY = re.compile(r"(?:[周週]|星期|[礼禮]拜)[一二三四五六][）)]?\s?\Z")
"""A day of the week whose number a number that follows would be taken for more of: 周二 14:00."""
_PLACES = ("千", "百", "十", "")
_GROUPS = ("", "万", "亿", "万亿")


class Chinese(Language):
    """Mandarin; two is 两 before thousands, hundreds and what it counts."""

    tag = "zh"
    space, pause = "", "，"
    minus, plus, point, to, by, root = "负", "加", "点", "到", "乘", "根号"
    units, per_units, currencies = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES
    signs, operations = tables.SIGNS, tables.OPERATIONS

    def folded(self, text: str) -> str:
        return text.translate(SIMPLIFIED)

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:
        words = in_script_of(place.text, place.start, form.end, form.words)
        is_after_day = words[:1] in "零一二两兩三四五六七八九十" and _WEEKDAY.search(place.before)
        return ReadForm(form.end, f"{self.pause}{words}" if is_after_day and words else words)

    def cardinal(self, digits: str) -> str:
        if len(digits) > LONGEST or (digits.startswith("0") and len(digits) > 1):
            return self.digits(digits)
        return _cardinal(digits)

    def digits(self, digits: str) -> str:
        return digits.translate(_DIGITS)

    def telephone_digits(self, digits: str) -> str:
        return digits.translate(_TELEPHONE_DIGITS)

    def ordinal(self, number: int) -> str:
        return f"第{self.cardinal(str(number))}"

    def number(self, numeral: Numeral) -> str:
        whole = numeral.whole or "0"
        if numeral.fraction is not None:
            whole = whole.lstrip("0") or "0"
        fraction = "" if numeral.fraction is None else f"点{self.digits(numeral.fraction)}"
        return f"{'负' if numeral.negative else ''}{self.cardinal(whole)}{fraction}"

    def year(self, year: int) -> str:
        return self.digits(str(year))

    def date(self, date: Date) -> str:
        year = "" if date.year is None else f"{self.year(date.year)}年"
        day = "" if date.day is None else f"{_cardinal(str(date.day))}日"
        return f"{year}{_cardinal(str(date.month))}月{day}"

    def clock(self, clock: Clock) -> str:
        minute = f"{'零' if 0 < clock.minute < 10 else ''}{_cardinal(str(clock.minute))}分"
        if not clock.minute and not clock.second:
            minute = ""
        second = ""
        if clock.second:
            second = f"{'零' if clock.second < 10 else ''}{_cardinal(str(clock.second))}秒"
        hour = "两" if clock.hour == 2 else _cardinal(str(clock.hour))
        return f"{clock.half}{hour}点{minute}{second}"

    def fraction(self, numerator: int, denominator: int) -> str:
        return f"{_cardinal(str(denominator))}分之{_cardinal(str(numerator))}"

    def mixed(self, whole: str, fraction: str) -> str:
        return f"{whole}又{fraction}"

    def money(self, numeral: Numeral, currency: Currency) -> str:
        return self.counted(without_zeros(numeral), currency)

    def per(self, words: str, unit: Unit) -> str:
        return f"{words}每{unit.one}"

    def ratio(self, one: str, other: str) -> str:
        return f"{one}比{other}"

    def out_of(self, got: str, most: str) -> str:
        return f"{got}分，满分{most}分"

    def over(self, one: str, other: str) -> str:
        return f"{one}比{other}"

    def pressure(self, digits: str) -> str:
        return self.cardinal(digits)

    def power(self, exponent: str, plain: bool = False) -> str:  # noqa: ARG002
        minus = "负" if exponent.startswith("-") else ""
        digits = exponent.lstrip("-")
        return f"的{minus}{self.cardinal(digits) if digits.isdecimal() else digits}次方"

    def counted(self, numeral: Numeral, unit: Unit | Currency) -> str:
        if numeral == Numeral("2"):
            return f"两{unit.one}"
        return f"{self.number(numeral)}{unit.one}"


def without_zeros(numeral: Numeral) -> Numeral:
    """An amount without the zeros at its end, which are not spoken: 45.50 is 45.5."""
    fraction = (numeral.fraction or "").rstrip("0")
    return Numeral(numeral.whole, fraction or None, numeral.negative)


def _cardinal(digits: str) -> str:
    digits = digits.lstrip("0") or "0"
    if digits == "0":
        return "零"
    width = -(-len(digits) // 4) * 4
    padded = digits.rjust(width, "0")
    groups = [padded[start : start + 4] for start in range(0, width, 4)]
    words = ""
    gap = False
    for place, group in enumerate(groups):
        if group == "0000":
            gap = True
            continue
        zero = words and (gap or group.startswith("0"))
        scale = _GROUPS[len(groups) - 1 - place]
        if scale == "万亿" and groups[place + 1] != "0000":
            scale = "万"
        two = group == "0002" and scale
        words += ("零" if zero else "") + ("两" if two else _below_ten_thousand(group)) + scale
        gap = False
    if words.startswith("一十"):
        return words[1:]
    return f"两{words[1:]}" if words == "二百" or words.startswith("二千") else words


def _below_ten_thousand(group: str) -> str:
    words = ""
    zero = False
    for digit, place in zip(group, _PLACES, strict=True):
        if digit == "0":
            zero = bool(words)
            continue
        words += ("零" if zero else "") + digit.translate(_DIGITS) + place
        zero = False
    return words


CHINESE = Chinese()
