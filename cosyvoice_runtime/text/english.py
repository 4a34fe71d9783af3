"""English numbers, dates, times, amounts and addresses in words.

The library's English grammar misreads grouped numbers with decimals ("1,000.5" -> "thousand point five"),
cents, telephone numbers, "5 m" (minutes) and changes words that aren't numbers ("No." -> "Number."). So it
gets single expressions whose shape it reads right; the others are read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cosyvoice_runtime.text.english_words import cardinal, decimal, digits, integer

Read = Callable[[str], str]
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]

# No match starts inside a run of digits: that also keeps long runs linear.
_NUMBER = r"(?<![0-9])(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
}
_ADDRESS = (
    r"(?:https?://|www\.)[\w./%#?=&+~-]{0,100}[\w/]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"
)
_PHONE = (
    r"(?<![\w.])(?:\+[0-9]{1,3}[ .-]?|1[ .-])?(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?!\w)"
    r"|(?<![\w.])\+[0-9]{1,3}(?:[ -][0-9]{2,5}){2,5}(?!\w)"
    r"|(?<![\w.-])[0-9]{3}-[0-9]{4}(?![\w-])"
)
# The last dot of "p.m." also ends a sentence unless a small letter follows.
_CLOCK_TIME = r"\b([0-9]{1,2}(?::[0-9]{2}){0,2}) ?([ap])(?:m\b|\.m\b\.?(?=\s+[a-z])|\.m\b)"
_SCALES = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion"}
_DECADES = (
    "hundreds",
    "tens",
    *["twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties", "nineties"],
)
_SIGNS = {"-": "minus ", "+": "plus ", "#": "number ", "~": "about "}
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
        _rule(rf"([$€£¥])\s?({_NUMBER})(?:\s?(thousand|million|billion|trillion|[kKmM]|bn|[bB])\b)?", _money),
        _rule(r"(?<![0-9.,])([A-Za-z]?)([0-9]+(?:\.[0-9]+){2,})(?![0-9])([A-Za-z]?)", _dotted),
        _rule(rf"(?<![0-9.,])([A-Za-z]?)({_NUMBER})(?![0-9])([A-Za-z]?)", _grouped),
        _rule(r"(?<![0-9A-Za-z.])\.[0-9]+", lambda match: decimal(match[0])),
        _rule(r"[0-9]+", lambda match: integer(match[0])),
    ]


def expression_rules(library: Read) -> list[Rule]:
    """Everything that is read in English text, in the order of application."""

    def read(match: re.Match[str]) -> str:
        return library(match[0])

    money, *numbers = number_rules()
    return [
        _rule(_ADDRESS, read),
        money,
        _rule(_PHONE, _phone),
        _rule(rf"\b{_MONTH}\.? {_DAY}(?:,? [0-9]{{4}})?\b|\b{_DAY} {_MONTH}(?:,? [0-9]{{4}})?\b", read),
        _rule(r"\b[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}\b|\b[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}\b", read),
        _rule(_CLOCK_TIME, lambda match: library(f"{match[1]} {match[2]}m")),
        _rule(r"\b[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?\b", read),
        _rule(r"\b[0-9]+(?:\s?[+*×=]\s?[0-9]+){1,8}\b", read),
        _rule(r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b(?!\.[0-9])", read),
        _rule(r"'?\b(1[1-9]|20)?([0-9])0s\b", _decade),
        _rule(r"\b[Nn]o\. ?(?=[0-9])", lambda _: "number "),
        _rule(r"(?<![\w)])[-+#~](?=[$€£¥.]?[0-9])", lambda match: _SIGNS[match[0]]),
        _rule(r"(?<![\w.,])([0-9]+)[-–]([0-9]+)(?![\w,-])", lambda match: f"{match[1]} to {match[2]}"),
        _rule(r"\b(?:[0-9]+ )?[0-9]{1,2}/[0-9]{1,3}\b(?!/)", lambda match: _fraction(match[0], library)),
        _rule(rf"({_NUMBER})\s?({_UNIT})(?!\w)", lambda match: _measure(match[1], match[2], library)),
        _rule(rf"({_NUMBER})\s?%", lambda match: f"{decimal(match[1])} percent"),
        _rule(r"\b[0-9][0-9,]*(?:st|nd|rd|th)\b", read),
        _rule(r"(?<![\w.,])(?:1[1-9]|20)[0-9]{2}(?![\w,]|\.[0-9])", read),
        _rule(r"(?<![.,])\b(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[0-9A-Za-z]{1,40}\b(?!\.[0-9])", read),
        *numbers,
    ]


def apply(rules: list[Rule], text: str) -> str:
    """The text with every rule applied in order."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _rule(pattern: str, replacement: Callable[[re.Match[str]], str]) -> Rule:
    return re.compile(pattern), replacement


def _money(match: re.Match[str]) -> str:
    singular, plural, cent, cents = _CURRENCIES[match[1]]
    amount, scale = match[2].replace(",", ""), match[3]
    whole, _, fraction = amount.partition(".")
    if scale:
        return f"{decimal(amount)} {_SCALES.get(scale.lower(), scale)} {plural}"
    if len(fraction) != 2 or not cent:
        return f"{decimal(amount)} {singular if amount == '1' else plural}"
    parts = [(int(whole), singular, plural), (int(fraction), cent, cents)]
    spoken = [f"{cardinal(count)} {one if count == 1 else many}" for count, one, many in parts if count]
    return " and ".join(spoken) or f"zero {plural}"


def _dotted(match: re.Match[str]) -> str:
    words = " point ".join(integer(part) for part in match[2].split("."))
    return " ".join(filter(None, (match[1], words, match[3])))


def _grouped(match: re.Match[str]) -> str:
    """Only where commas or a dot make it more than a run of digits."""
    if match[2].isdigit():
        return match[0]
    return " ".join(filter(None, (match[1], decimal(match[2]), match[3])))


def _phone(match: re.Match[str]) -> str:
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(digits(group) for group in re.findall("[0-9]+", match[0]))


def _decade(match: re.Match[str]) -> str:
    century, decade = match[1], int(match[2])
    if not century:
        return _DECADES[decade] if decade > 1 else match[0]
    if century == "20" and decade == 0:
        return "two thousands"
    return f"{cardinal(int(century))} {_DECADES[decade]}"


def _fraction(text: str, library: Read) -> str:
    above, below = text.split(" ")[-1].split("/")
    return library(text) if 0 < int(above) < int(below) else text.replace("/", " ")


def _measure(number: str, unit: str, library: Read) -> str:
    one = number == "1"
    if unit in _MISREAD_UNITS:
        name = _MISREAD_UNITS[unit][0 if one else 1]
    else:
        name = library(f"1 {unit}").removeprefix("one ") if one else library(f"2 {unit}").removeprefix("two ")
    return f"{decimal(number)} {name}"
