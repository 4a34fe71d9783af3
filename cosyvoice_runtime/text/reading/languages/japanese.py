"""Japanese: words and habits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosyvoice_runtime.text.reading.languages import japanese_tables as tables
from cosyvoice_runtime.text.reading.languages.east_asian import (
    LONGEST,
    amount,
    below_ten_thousand,
    groups_of_four,
)
from cosyvoice_runtime.text.reading.languages.japanese_forms import FORMS
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Date, Language, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

_DIGITS = "〇一二三四五六七八九"
_TENS = "十百千"
_SCALES = ["", "万", "億", "兆", "京"]


class Japanese(Language):
    """Japanese: words without spaces between them."""

    tag = "ja"
    space, pause = "", "、"
    minus, plus, point, to, by, root = "マイナス", "プラス", "点", "から", "かける", "ルート"
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    glued_units = ("in", "t", "h", "N", "J", "s", "l")
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    halves: Mapping[str, str] = {"am": "午前", "pm": "午後"}
    long_run = LONGEST + 1
    before_code = (
        "(?:暗証|郵便|口座|認証|注文|予約|会員|受付|追跡|伝票|登録|確認|社員|学籍|製造)番号[はがを]?[：:]?"
        "|マイナンバー[はがを]?[：:]?|パスワード[はがを]?[：:]?|(?:認証|確認)?コード[はがを]?[：:]?|PIN|ISBN|内線(?:番号)?[はがを]?[：:]?",
        "番号[はがを]?[：:]?",
        "電話[はがを]?[：:]?",
    )
    before_rating = ("評価", "評価は", "評点", "採点", "スコア")

    def cardinal(self, digits: str) -> str:
        if len(digits) > LONGEST or (digits.startswith("0") and len(digits) > 1):
            return self.telephone_digits(digits)
        return cardinal(digits)

    def digits(self, digits: str) -> str:
        return "".join(_DIGITS[int(digit)] for digit in digits)

    def telephone_digits(self, digits: str) -> str:
        return self.digits(digits).replace("〇", "ゼロ")

    def label(self, label: str, last: bool) -> str:
        return super().label(label, last).replace("〇", "ゼロ")

    def grouped(self, groups: Sequence[str]) -> str:
        return "の".join(groups)

    def number(self, numeral: Numeral) -> str:
        minus = self.minus if numeral.negative else ""
        whole = self.cardinal(numeral.whole or "0")
        return f"{minus}{whole}" + ("" if numeral.fraction is None else f"点{self.digits(numeral.fraction)}")

    def ordinal(self, number: int) -> str:
        return f"第{cardinal(str(number))}"

    def year(self, year: int) -> str:
        return cardinal(str(year))

    def date(self, date: Date) -> str:
        year = "" if date.year is None else f"{self.year(date.year)}年"
        day = "" if date.day is None else f"{cardinal(str(date.day))}日"
        return f"{year}{cardinal(str(date.month))}月{day}"

    def clock(self, clock: Clock) -> str:
        parts = [clock.half, f"{cardinal(str(clock.hour)) if clock.hour else '零'}時"]
        if clock.minute or clock.second:
            parts.append(f"{cardinal(str(clock.minute)) if clock.minute else '零'}分")
        if clock.second:
            parts.append(f"{cardinal(str(clock.second))}秒")
        return "".join((*parts, clock.zone))

    def fraction(self, numerator: int, denominator: int) -> str:
        return f"{cardinal(str(denominator))}分の{cardinal(str(numerator))}"

    def mixed(self, whole: str, fraction: str) -> str:
        return f"{whole}と{fraction}"

    def money(self, numeral: Numeral, currency: Currency) -> str:
        return amount(self, numeral, currency)

    def per(self, words: str, unit: Unit) -> str:
        one = tables.COUNTED_PER.get(unit.one) if unit.one not in ("時", "分", "秒") else None
        return f"{one}あたり{words}" if one else f"{words}毎{unit.one}"

    def ratio(self, one: str, other: str) -> str:
        return f"{one}対{other}"

    def out_of(self, got: str, most: str) -> str:
        return f"{most}点満点中{got}点"

    def over(self, one: str, other: str) -> str:
        return f"{one}の{other}"

    def pressure(self, digits: str) -> str:
        return cardinal(digits)

    def power(self, exponent: str, plain: bool = False) -> str:  # noqa: ARG002
        minus = self.minus if exponent.startswith("-") else ""
        digits = exponent.lstrip("-")
        return f"の{minus}{self.cardinal(digits) if digits.isdecimal() else digits}乗"

    def feet(self, feet: int, inches: int) -> str:
        return f"{cardinal(str(feet))}フィート{cardinal(str(inches))}インチ"

    def own(self, place: Place) -> ReadForm | None:
        return first(FORMS, place, self)


def cardinal(digits: str) -> str:
    """A whole number of at most :data:`LONGEST` digits."""
    words = ""
    for place, group in reversed(list(enumerate(groups_of_four(digits)))):
        if group:
            thousand = "一千" if place else "千"
            words += below_ten_thousand(group, _DIGITS, _TENS, thousand) + _SCALES[place]
    return words or _DIGITS[0]


JAPANESE = Japanese()
