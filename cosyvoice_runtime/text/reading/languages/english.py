"""English: words and habits."""

from __future__ import annotations

import re
from dataclasses import replace

from cosyvoice_runtime.text.reading.languages import english_dates as dates
from cosyvoice_runtime.text.reading.languages import english_forms as forms
from cosyvoice_runtime.text.reading.languages import english_nouns as nouns
from cosyvoice_runtime.text.reading.languages import english_tables as tables
from cosyvoice_runtime.text.reading.languages import english_units as measures
from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Date, Language, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ["", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion"]
_SUBSCRIPTS = {ord(sign): str(digit) for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")}
_LONGEST_GROUPED = 21
"""Digits of the longest number that scales have words for."""
LONGEST = 15
"""Digits of the longest cardinal; longer runs are card or serial numbers and read digit by digit."""
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_DECADES = [
    "hundreds", "tens", "twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties",
    "nineties",
]  # fmt: skip


_NO_DATE = rf"(?!(?:{'|'.join(tables.MONTH_NAMES)})\. )"
"""No dot follows the full name of a month, unless the sentence ends there."""
_COUNTS = (
    "(?! (?:times|years|days|weeks|months|hours|minutes|people|soldiers|men|women|more|other|different|new)"
    "(?![A-Za-z]))"
)


class English(Language):
    """English in its British form of numbers: one hundred and one."""

    tag = "en"
    minus, plus, point, to, by = "minus", "plus", "point", "to", "by"
    abbreviations = tables.ABBREVIATIONS
    months, currencies, scales = tables.MONTHS, tables.CURRENCIES, tables.SCALES
    units, per_units, time_units = measures.UNITS, measures.PER_UNITS, measures.TIME_UNITS
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    root = "the square root of"
    letters = tables.LETTERS
    month_first, falling_ranges, spaces_begin_forms = True, False, False
    halves = tables.HALVES
    glued_units = measures.GLUED_UNITS
    hyphen_units = measures.HYPHEN_UNITS
    formula_units = measures.FORMULA_UNITS
    after_minutes = ("ago", "later", "left", "remaining", "timer", "break", "away", "long")
    weekdays = tuple(sorted({name.lower() for names in tables.WEEKDAYS.items() for name in names}))
    date_patterns = (
        rf"{_NO_DATE}\b{{month}} (?:the )?{{day}}(?:st|nd|rd|th)?(?![\w]|[.:/][0-9]){_COUNTS}"
        r"(?:(?:, ?| ){year})?",
        r"\b{month}-{day}-{year}",
        r"\b{month}[ -](?:of )?{year}",
        r"(?<!chapter )(?<!section )(?<!part )(?<!page )(?<!step )(?<![\w.,:/-])(?:the )?{day}"
        r"(?:st|nd|rd|th)?[ -](?:of )?(?:the )?{month}(?![\w])(?:(?:, ?| |-){year})?",
    )
    before_code = (
        "(?:card|account|phone|number|ssn|visa|mastercard|amex) (?:ending|ends) (?:in|with)|"
        "last (?:four|4) digits|text \\w{2,12} to|"
        "ISBN(?:-1[03])?|ISSN|PIN|SSN|OTP|passcode|password|extension|ext\\.?|zip(?: code)?|flight|room|"
        "[Rr]m\\.?",
        "account|card|code|serial|order|PO|claim|policy|booking|confirmation|member|reference|receipt|"
        "SKU|UPC|tracking|ticket|invoice|case|license|number|no\\.|ID|text|SMS",
        "call|dial|calling|dialing",
    )
    before_rating = (
        "rated", "rating", "score", "scored", "gave", "got", "mark", "grade", "result", "quiz", "exam",
        "gcs", "apgar",
    )  # fmt: skip
    before_year = (
        "in", "since", "year", "until", "till", "by", "from", "before", "after", "around", "circa", "of",
        "between", "b", "d", "r", "c", "ca", "fl", "born", "died", "reigned",
    )  # fmt: skip
    before_pairs = (
        "rtx", "gtx", "rx", "boeing", "airbus", "ryzen", "highway", "route", "interstate", "building",
        "xbox", "rfc", "invoice", "iso", "din",
    )  # fmt: skip

    def folded(self, text: str) -> str:
        return text.translate(_SUBSCRIPTS)

    def number(self, numeral: Numeral) -> str:
        if numeral.grouped and LONGEST < len(numeral.whole) <= _LONGEST_GROUPED:
            words = super().number(replace(numeral, whole="0"))
            return words.replace(_SMALL[0], _cardinal(numeral.value), 1)
        return super().number(numeral)

    def number_before(self, numeral: Numeral, place: Place, end: int) -> str:
        another = numeral.fraction and _ANOTHER.match(place.text, end)
        return self.number(numeral) + ("," if another else "")

    def pairs(self, digits: str) -> str:
        head, tail = digits[:-2], digits[-2:]
        if tail == "00" and head[-1:] != "0":
            return f"{self.cardinal(head)} hundred"
        if len(tail) == 2 and tail[0] == "0" and tail[1] != "0":
            return f"{self.cardinal(head)} oh {self.cardinal(tail[1])}"
        return super().pairs(digits)

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:
        if form.words.startswith("the ") and place.before.lower().endswith("the "):
            return form._replace(words=form.words.removeprefix("the "))
        last = form.words.rpartition(" ")[2]
        if last in listed.MAY_END and _SENTENCE.match(place.text, form.end - 1):
            return form._replace(words=f"{form.words}.")
        return form

    def puts_month_first(self, place: Place) -> bool:
        return not dates.is_british(place)

    def is_amount(self, place: Place, end: int) -> bool:
        return nouns.is_amount(place, end, self.units)

    def qualifies(self, place: Place, end: int) -> bool:
        return nouns.qualifies(place, end)

    def currency(self, sign: str, place: Place) -> Currency:
        return self.currencies["CNY" if sign == "¥" and nouns.is_about_china(place) else sign]

    def quality(self, currency: Currency) -> Currency:
        cents = currency.cents if currency.cents == "pence" else currency.cent
        return currency._replace(many=currency.one, cents=cents)

    def cardinal(self, digits: str) -> str:
        if len(digits) > LONGEST or (digits.startswith("0") and len(digits) > 1):
            return self.digits(digits)
        return _cardinal(int(digits))

    def digits(self, digits: str) -> str:
        return " ".join(_SMALL[int(digit)] for digit in digits)

    def ordinal(self, number: int) -> str:
        rest, space, last = _cardinal(number).rpartition(" ")
        tens, hyphen, ones = last.rpartition("-")
        ends = _ORDINALS.get(ones) or (f"{ones[:-1]}ieth" if ones.endswith("y") else f"{ones}th")
        return f"{rest}{space}{tens}{'-' if hyphen else ''}{ends}"

    def year(self, year: int) -> str:
        century, rest = divmod(year, 100)
        if not 10 <= century < 100 or (century % 10 == 0 and rest < 10):
            return _cardinal(year)
        if not rest:
            return f"{_cardinal(century)} hundred"
        return f"{_cardinal(century)} {'oh ' if rest < 10 else ''}{_cardinal(rest).replace('-', ' ')}"

    def date(self, date: Date) -> str:
        month = date.name or tables.MONTH_NAMES[date.month - 1]
        day = "" if date.day is None else self.ordinal(date.day).replace("-", " ")
        named = tables.WEEKDAYS.get(date.weekday.capitalize(), date.weekday)
        weekday = f"{named}, " if date.weekday else ""
        if date.day is None:
            words = month
        elif date.day_first:
            words = f"the {day} of {month}"
        else:
            words = f"{weekday}{month} {day}"
        if date.year is None:
            return words
        return f"{words}{',' if date.comma else ''} {self.year(date.year)}"

    def clock(self, clock: Clock) -> str:
        half = clock.half
        if clock.second is not None and not half and (clock.minute or clock.second):
            units = ("hour", clock.hour), ("minute", clock.minute), ("second", clock.second)
            *most, last = (self.counted(Numeral(str(n)), Unit(unit, f"{unit}s")) for unit, n in units if n)
            return " and ".join([" ".join(most), last]) if most else last
        parts = [_cardinal(clock.hour).replace("-", " ")]
        if clock.minute:
            parts.append(f"{'oh ' if clock.minute < 10 else ''}{_cardinal(clock.minute).replace('-', ' ')}")
        elif not half:
            parts.append("o'clock" if 0 < clock.hour <= 12 else "hundred")
        if clock.second:
            parts.append(f"and {self.counted(Numeral(str(clock.second)), self.units['s'])}")
        return " ".join(filter(None, (*parts, half, clock.zone)))

    def fraction(self, numerator: int, denominator: int) -> str:
        if denominator == 2:
            name = "half" if numerator == 1 else "halves"
        elif denominator == 4:
            name = "quarter" if numerator == 1 else "quarters"
        else:
            name = self.ordinal(denominator) + ("" if numerator == 1 else "s")
        return f"{_cardinal(numerator)} {name}"

    def mixed(self, whole: str, fraction: str) -> str:
        if fraction in ("one half", "one quarter"):
            fraction = f"a{fraction.removeprefix('one')}"
        return f"{whole} and {fraction}"

    def money(self, numeral: Numeral, currency: Currency) -> str:
        fraction = numeral.fraction
        if fraction and len(fraction) > 2:
            fraction = fraction.rstrip("0").ljust(2, "0")
            numeral = replace(numeral, fraction=fraction)
        if not fraction or not fraction.strip("0"):
            return self.counted(
                replace(numeral, fraction=None, whole=numeral.whole.lstrip("0") or "0"), currency
            )
        if len(fraction) != 2 or not currency.cent:
            return self.counted(numeral, currency)
        whole, cents = numeral.whole.lstrip("0"), fraction.lstrip("0")
        parts = [self.counted(Numeral(whole), currency)] if whole else []
        parts.append(self.counted(Numeral(cents), Unit(currency.cent, currency.cents)))
        return f"{'minus ' if numeral.negative else ''}{' and '.join(parts)}"

    def per(self, words: str, unit: Unit) -> str:
        return f"{words} per {unit.one}"

    def ratio(self, one: str, other: str) -> str:
        return f"{one} to {other}"

    def out_of(self, got: str, most: str) -> str:
        return f"{got} out of {most}"

    def over(self, one: str, other: str) -> str:
        return f"{one} over {other}"

    def pressure(self, digits: str) -> str:
        return self.pairs(digits) if len(digits) == 3 and digits[1] != "0" else self.cardinal(digits)

    def first_day(self, day: int) -> str:
        return f"the {self.ordinal(day)}".replace("-", " ")

    def power(self, exponent: str, plain: bool = False) -> str:
        if exponent in ("2", "3") and not plain:
            return "squared" if exponent == "2" else "cubed"
        if exponent == "T":
            return "transpose"
        minus = "minus " if exponent.startswith("-") else ""
        digits = exponent.lstrip("-")
        words = self.cardinal(digits) if digits.isdecimal() else digits
        return f"to the {'' if plain else 'power of '}{minus}{words}"

    def fraction_of(self, fraction: str, unit: Unit, mixed: bool) -> str:
        if unit.one.endswith("second") and not mixed:
            return f"{fraction} of a {unit.one}"
        return super().fraction_of(fraction, unit, mixed)

    def feet(self, feet: int, inches: int) -> str:
        return f"{_cardinal(feet)} foot {_cardinal(inches)}"

    def decades(self, place: Place) -> ReadForm | None:
        found = place.match(_DECADE)
        if not found:
            return None
        if not found[1] and not found[0].startswith(("'", "’")):
            told = _THE.search(place.before)
            if not told or (told["list"] and found[2] < "2"):
                return None
        words = self._decade(int(f"{found[1] or ''}{found[2]}0"))
        last = _LAST_DECADE.match(place.text, found.end())
        if not last:
            return ReadForm(found.end(), words)
        return ReadForm(last.end(), self.ranged(words, self._decade(int(f"{last[1] or ''}{last[2]}0"))))

    def ordinals(self, place: Place) -> ReadForm | None:
        found = place.match(_ORDINAL)
        if not found:
            return None
        number = int(found[1].replace(",", ""))
        if found[2].lower() not in (_ending(number), "th" if number % 10 == 0 else ""):
            return ReadForm(found.end(), f"{self.cardinal(str(number))} {found[2]}")
        return ReadForm(found.end(), self.ordinal(number).replace("-", " "))

    def address(self, place: Place) -> ReadForm | None:
        return forms.street(place, self) or forms.state(place, self)

    def own(self, place: Place) -> ReadForm | None:
        return forms.own(place, self)

    def counts(self, place: Place, end: int) -> bool:
        return bool(_COUNTED.match(place.text, end))

    def name_number(self, digits: str) -> str:
        if len(digits) > 1 and digits.startswith("0"):
            return self.digits(digits)
        in_pairs = len(digits) in (3, 4) and not digits.endswith("000") and digits[1:] != "00"
        return self.pairs(digits) if in_pairs else self.cardinal(digits)

    def abbreviation(self, word: str, following: str) -> str | None:
        if word in ("No", "no"):
            return "number" if following.isdecimal() else None
        if word in ("Rev", "Sr") and (not following or following.isupper()):
            return "Reverend" if word == "Rev" else "Senior"
        return None

    def roman(self, before: str, value: int) -> str | None:
        if before in listed.BEFORE_ROMAN:
            return self.cardinal(str(value))
        return f"the {self.ordinal(value)}" if before in listed.RULERS and value > 1 else None

    def _decade(self, year: int) -> str:
        """1990 -> ``nineteen nineties``; 90 -> ``nineties``."""
        century, rest = divmod(year, 100)
        if not century:
            return _DECADES[rest // 10]
        if year % 1000 == 0:
            return f"{_cardinal(century // 10)} thousands"
        return f"{_cardinal(century)} {_DECADES[rest // 10]}"


_ANOTHER = re.compile(" [0-9]")
_DECADE = re.compile(r"(?<![\w.,])['’]?(1[0-9]|20)?([0-9])0(?:['’]?s|\ss)(?![A-Za-z])")
_SENTENCE = re.compile(r"\.\s[A-Z](?:[a-z]+['’]?[a-z]*|)(?: |:)")
_LAST_DECADE = re.compile(r"\s?[-–—]\s?['’]?(1[1-9]|20)?([0-9])0['’]?s(?![A-Za-z])")
_THE = re.compile(
    r"(?i)(?:\b(?:the|in|early|mid|late|mid-)[ -]?(?:early |late |mid-?)?|(?P<list>0s(?:,| and| or| to) ))\Z"
)
_ORDINAL = re.compile(
    r"(?<!\w)(?<![0-9]\.)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,12})(st|nd|rd|th|ST|ND|RD|TH)(?![A-Za-z0-9])"
)
_COUNTED = re.compile(
    r"[ -](?:people|persons|users|customers|employees|students|words|tokens|characters|pages|steps|points|"
    r"times|units|items|files|lines|meters|metres|miles|feet|calories|dollars|euros|pounds|days|hours|"
    r"minutes|seconds|years|bytes|requests|images|samples|votes|tons|watts|square|cubic|copies|books|cars|jobs|members|residents|followers)\b"
)


def _ending(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _cardinal(number: int) -> str:
    groups = []
    left = number
    while left:
        left, group = divmod(left, 1000)
        groups.append(group)
    words = [_below_thousand(group) + scale for group, scale in zip(groups, _SCALES, strict=False) if group]
    if not words:
        return _SMALL[0]
    if len(words) > 1 and 0 < groups[0] < 100:
        return ", ".join(reversed(words[1:])) + " and " + words[0]
    return ", ".join(reversed(words))


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    return " and ".join([*words, *([_below_hundred(rest)] if rest else [])])


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")


ENGLISH = English()
