"""English numbers, dates, times, amounts and addresses in words.

The library's English grammar misreads grouped numbers with decimals ("1,000.5" -> "thousand point five"),
cents, telephone numbers, "5 m" (minutes) and changes words that aren't numbers ("No." -> "Number."). So it
gets single expressions whose shape it reads right; the others are read here.
"""

from __future__ import annotations

import re

from cosyvoice_runtime.text.english_words import cardinal, code_rules, decimal, integer
from cosyvoice_runtime.text.rules import CIRCLED, Read, Rule, apply, plain, rule

# No match starts inside a run of digits: that also keeps long runs linear.
_NUMBER = r"(?<![0-9])(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_NOT_NUMBERED = r"(?<!Chapter )(?<!Section )(?<!Part )(?<!Page )(?<!Step )"
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
    "R$": ("real", "reais", "centavo", "centavos"),
}
_COUNTRIES = {
    "US": "US", "A": "Australian", "AU": "Australian", "C": "Canadian", "CA": "Canadian", "HK": "Hong Kong",
    "NT": "New Taiwan", "NZ": "New Zealand", "S": "Singapore", "SG": "Singapore",
}  # fmt: skip
"""Characters before a dollar sign."""
_COUNTRY = "|".join(sorted(_COUNTRIES, key=len, reverse=True))
_CURRENCY = rf"(?:(?<![A-Za-z0-9])({_COUNTRY})(?=\$))?((?<![A-Za-z])R\$|[$€£¥])"
_ADDRESS = (
    r"(?:https?://|www\.)[\w./%#?=&+~-]{0,100}[\w/]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"
)
_HOST = (
    r"(?<![\w@.-])(?:[A-Za-z0-9-]{1,63}\.){1,5}(?:com|org|net|gov|edu|io|ai|dev|app|info|co\.uk)\b(?![\w@-])"
)
# The last dot of "p.m." also ends a sentence unless a small letter follows.
_CLOCK_TIME = r"\b([0-9]{1,2}(?::[0-9]{2}){0,2}) ?([ap])(?:m\b|\.m\b\.?(?=\s+[a-z])|\.m\b)"
_SCALES = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion"}
_DECADES = (
    "hundreds",
    "tens",
    *["twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties", "nineties"],
)
_POWERS = {"2": " squared", "3": " cubed", "²": " squared", "³": " cubed"}
_CIRCLED = str.maketrans({sign: str(number) for number, sign in enumerate(CIRCLED, start=1)})
_SIGNS = {
    "-": "minus ", "−": "minus ", "+": "plus ", "#": "number ", "~": "about ", "≈": "about ",
    "≤": "at most ", "≥": "at least ", "±": "plus or minus ",
}  # fmt: skip
_CURRENCY_CODES = {
    "USD": ("US dollar", "US dollars"),
    "EUR": ("euro", "euros"),
    "GBP": ("pound", "pounds"),
    "JPY": ("yen", "yen"),
    "CNY": ("yuan", "yuan"),
    "RMB": ("yuan", "yuan"),
}
_CODES = "|".join(_CURRENCY_CODES)
_MISREAD_UNITS = {
    "m": ("meter", "meters"),
    "m/s": ("meter per second", "meters per second"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "W": ("watt", "watts"),
    "V": ("volt", "volts"),
    "dB": ("decibel", "decibels"),
    "kHz": ("kilohertz", "kilohertz"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "sec": ("second", "seconds"),
    "hrs": ("hour", "hours"),
    "℃": ("degree Celsius", "degrees Celsius"),
    "℉": ("degree Fahrenheit", "degrees Fahrenheit"),
}
"""Units that the library reads wrongly or not at all: (singular, plural)."""
_LIBRARY_UNITS = (
    r"km/h mph km cm mm kg mg g lbs lb oz ft yd ml GB MB KB TB Gbps Mbps Hz MHz GHz °C °F ms min h kW mA "
    r"km² m² cm² km2 m2 cm2 sq\sft"
)
_UNIT = "|".join(sorted([*map(re.escape, _MISREAD_UNITS), *_LIBRARY_UNITS.split()], key=len, reverse=True))


def number_rules() -> list[Rule]:
    """Amounts, grouped, decimal and plain numbers: what upstream does without a library, read right."""
    return [
        rule(
            rf"{_CURRENCY}\s?({_NUMBER}|(?<![0-9])\.[0-9]+)"
            r"(?:\s?(thousand|million|billion|trillion|[kKmM]|bn|[bB])\b)?(?=(\w?))",
            _money,
        ),
        rule(r"(?<![0-9.,])([A-Za-z]?)([0-9]+(?:\.[0-9]+){2,})(?![0-9])([A-Za-z]?)", _dotted),
        rule(rf"(?<![0-9.,])([A-Za-z]?)({_NUMBER})(?![0-9])([A-Za-z]?)", _grouped),
        rule(r"(?<![0-9A-Za-z.])\.[0-9]+", lambda match: decimal(match[0])),
        rule(r"[0-9]+", lambda match: integer(match[0])),
    ]


def expression_rules(library: Read) -> list[Rule]:
    """Everything that is read in English text, in the order of application."""

    def read(match: re.Match[str]) -> str:
        return library(match[0])

    money, *numbers = number_rules()
    return [
        rule(_ADDRESS, lambda match: library(re.sub("^https?://", "", match[0]).rstrip("/"))),
        rule(_HOST, read),
        rule(r"(?<![A-Za-z])[A-Za-z]+(?=[$€£¥]\.?[0-9])", _before_currency),
        rule(
            rf"(?<![\w)])(?<![0-9] )(?:[-−+~]|[≈≤≥±] ?)"
            rf"(?={_CURRENCY}\.?[0-9]|{_NUMBER}(?:\s?[€£](?!\w)| ?(?:{_CODES})\b)|(?:{_CODES}) ?[0-9])",
            _sign,
        ),
        rule(
            rf"{_CURRENCY}({_NUMBER})\s?[-–]\s?(?:\1?\2)?({_NUMBER})(?: (thousand|million|billion)\b)?(?!\w)",
            _money_range,
        ),
        money,
        rule(rf"({_NUMBER})\s?([€£])(?!\w)", lambda match: _amount(match[1], *_CURRENCIES[match[2]][:2])),
        rule(rf"({_NUMBER}) ?({_CODES})\b", lambda match: _amount(match[1], *_CURRENCY_CODES[match[2]])),
        rule(rf"\b({_CODES}) ?({_NUMBER})", lambda match: _amount(match[2], *_CURRENCY_CODES[match[1]])),
        rule(rf"\b({_MONTH}\.? )({_DAY})\b((?:,? [0-9]{{4}})?)\b", lambda match: _date(match, library)),
        rule(
            rf"{_NOT_NUMBERED}\b(?:the )?({_DAY}) ({_MONTH}(?:,? [0-9]{{4}})?)\b",
            lambda match: _date_by_day(match, library),
        ),
        rule(r"\b[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}\b|\b[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}\b", read),
        rule(
            r"(?<![0-9.-])([0-9]{1,2})([.-])([0-9]{1,2})\2((?:19|20)[0-9]{2})\b(?![.-]?[0-9])",
            lambda match: library(f"{match[1]}/{match[3]}/{match[4]}"),
        ),
        rule(r"\b9/11\b", "nine eleven"),
        rule(r"(?<=[0-9]%)\s?[-–]\s?(?=[0-9.]+%)", " to "),
        rule(r"((?:19|20)[0-9]{2})/([0-9]{2})(?![0-9/])", r"\1 to \2"),
        rule(
            r"(?:(?<=[0-9])|(?<=[0-9][ap]m)|(?<=[0-9] [ap]m))\s?[-–]\s?(?=[0-9]{1,2}(?::[0-9]{2}| ?[ap]m\b))",
            " to ",
        ),
        rule(_CLOCK_TIME, lambda match: library(f"{match[1]} {match[2]}m")),
        rule(r"\b24:00(?::00)?h?\b(?!:)", "twenty four o'clock"),
        rule(r"\b([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)h?\b", lambda match: library(match[1])),
        rule(r"(?<![0-9:.])([0-9]{1,3}):([0-9]{1,3})(?![0-9:])", r"\1 to \2"),
        *code_rules(),
        rule(r"([0-9]) ?(mm|cm|m|in|ft)? ?x (?=[0-9])|([0-9]) ?(mm|cm|m|in|ft) ?[x×] ?(?=[0-9])", _by),
        rule(r"(?<=[0-9])\s?×\s?(?=[0-9])", "*"),
        rule(r"(?<![\w.,/])[0-9]+(?:\s?[-+*/]\s?[0-9]+){1,8}\s?=\s?[0-9]+(?![\w.,]*[0-9])", _equation),
        rule(r"\b[0-9]+(?:\s?[+*=]\s?[0-9]+){1,8}\b", read),
        rule(r"(?<![A-Za-z0-9])(?<![0-9] )([A-Za-z])([²³])(?=(\w?))", _variable),
        rule(r"(?<=[0-9A-Za-z])\^(-?)([0-9]{1,4})(?![0-9])", _power),
        rule(r"(?<=[0-9A-Za-z])\s?=\s?(?=-?[0-9])", " equals "),
        rule(r"(?<=[0-9])\+(?![\w+])", " plus"),
        rule(r"(?<=[A-Za-z])/(?=[0-9])", " "),
        rule(r"\b([0-9])'([0-9]{1,2})\"", r"\1 foot \2"),
        rule(r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b(?!\.[0-9])", read),
        rule(r"'?\b(1[1-9]|20)?([0-9])0s\b", _decade),
        rule(r"\b[Nn]o\. ?(?=[0-9])", lambda _: "number "),
        rule(r"(?<![\w)])(?:[-−+#~]|[#≈≤≥±] ?)(?=\.?[0-9])", _sign),
        rule(rf"(?<![\w.,])({_NUMBER})[-–]({_NUMBER})(?=(?:{_UNIT})?(?![\w-]|[.,][0-9]))", r"\1 to \2"),
        rule(
            r"(?<!/)\b(?:[0-9]+ )?[0-9]{1,2}(?:/[0-9]{1,3})+\b(?!/)",
            lambda match: _fraction(match[0], library),
        ),
        rule(rf"({_NUMBER})\s?({_UNIT})(?!\w)", lambda match: _measure(match[1], match[2], library)),
        rule(rf"({_NUMBER})\s?%(?=(\w?))", _percent),
        rule(r"\b(?<![0-9],)[0-9][0-9,]*(?:st|nd|rd|th)\b", read),
        rule(r"(?<![\w.,])(?:1[1-9]|20)[0-9]{2}(?![\w,]|\.[0-9])", read),
        rule(r"(?<![.,])\b(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[0-9A-Za-z]{1,40}\b(?!\.[0-9])", read),
        *numbers,
    ]


def read_expressions(text: str, rules: list[Rule]) -> str:
    """Numbers and the like of a text (no special tokens in it) in words, by :func:`expression_rules`."""
    text = re.sub(rf"(?<=[{CIRCLED}])(?=\w)", " ", plain(text)).translate(_CIRCLED)
    return apply(rules, text)


def _amount(number: str, singular: str, plural: str) -> str:
    return f"{decimal(number)} {singular if number == '1' else plural}"


def _money_range(match: re.Match[str]) -> str:
    scale = f"{match[5]} " if match[5] else ""
    return f"{decimal(match[3])} to {decimal(match[4])} {scale}{_currency(match)[1]}"


def _date(match: re.Match[str], library: Read) -> str:
    return library(f"{match[1]}{_ordinal(match[2])}{match[3]}")


def _date_by_day(match: re.Match[str], library: Read) -> str:
    return library(f"the {_ordinal(match[1])} of {match[2]}")


def _ordinal(day: str) -> str:
    """1 or 1st -> ``1st``."""
    day = day.rstrip("stndrh")
    endings = {"1": "st", "2": "nd", "3": "rd"}
    return day + ("th" if day[-2:-1] == "1" else endings.get(day[-1], "th"))


def _power(match: re.Match[str]) -> str:
    if not match[1] and match[2] in _POWERS:
        return _POWERS[match[2]]
    return f" to the power of {'minus ' if match[1] else ''}{match[2]}"


def _equation(match: re.Match[str]) -> str:
    words = {"-": "minus", "+": "plus", "*": "times", "/": "divided by", "=": "equals"}
    return " ".join(words.get(part, part) for part in re.findall("[0-9]+|[-+*/=]", match[0]))


def _variable(match: re.Match[str]) -> str:
    return match[1] + _POWERS[match[2]] + (" " if match[3] else "")


def _by(match: re.Match[str]) -> str:
    return f"{match[1] or match[3]}{match[2] or match[4] or ''} by "


def _currency(match: re.Match[str]) -> tuple[str, str, str, str]:
    """Names of the currency that :data:`_CURRENCY` found: of one and of more, and of their hundredths."""
    singular, plural, cent, cents = _CURRENCIES[match[2]]
    country = f"{_COUNTRIES[match[1]]} " if match[1] else ""
    return country + singular, country + plural, cent, cents


def _before_currency(match: re.Match[str]) -> str:
    """A word apart from the amount after it; not what belongs to the sign."""
    return match[0] if match[0] in (*_COUNTRIES, "R") else f"{match[0]} "


def _sign(match: re.Match[str]) -> str:
    return _SIGNS[match[0][0]]


def _percent(match: re.Match[str]) -> str:
    return f"{decimal(match[1])} percent{' ' if match[2] else ''}"


def _money(match: re.Match[str]) -> str:
    return _sum_of_money(match) + (" " if match[5] else "")


def _sum_of_money(match: re.Match[str]) -> str:
    singular, plural, cent, cents = _currency(match)
    amount, scale = match[3].replace(",", ""), match[4]
    whole, _, fraction = amount.partition(".")
    if scale:
        return f"{decimal(amount)} {_SCALES.get(scale.lower(), scale)} {plural}"
    if len(fraction) != 2 or not cent:
        return f"{decimal(amount)} {singular if amount == '1' else plural}"
    parts = [(whole.lstrip("0"), singular, plural), (fraction.lstrip("0"), cent, cents)]
    spoken = [f"{integer(count)} {one if count == '1' else many}" for count, one, many in parts if count]
    return " and ".join(spoken) or f"zero {plural}"


def _dotted(match: re.Match[str]) -> str:
    words = " point ".join(integer(part) for part in match[2].split("."))
    return " ".join(filter(None, (match[1], words, match[3])))


def _grouped(match: re.Match[str]) -> str:
    """A number in words, if commas or a dot make it more than a run of digits."""
    if match[2].isdigit():
        return match[0]
    return " ".join(filter(None, (match[1], decimal(match[2]), match[3])))


def _decade(match: re.Match[str]) -> str:
    century, decade = match[1], int(match[2])
    if not century:
        return _DECADES[decade] if decade > 1 else match[0]
    if century == "20" and decade == 0:
        return "two thousands"
    return f"{cardinal(int(century))} {_DECADES[decade]}"


def _fraction(text: str, library: Read) -> str:
    above, *below = map(int, text.split(" ")[-1].split("/"))
    is_fraction = len(below) == 1 and 0 < above < below[0]
    return library(text) if is_fraction else text.replace("/", " ")


def _measure(number: str, unit: str, library: Read) -> str:
    one = number == "1"
    if unit in _MISREAD_UNITS:
        name = _MISREAD_UNITS[unit][0 if one else 1]
    else:
        name = library(f"1 {unit}").removeprefix("one ") if one else library(f"2 {unit}").removeprefix("two ")
    return f"{decimal(number)} {name}"
