"""English words for numbers, in the British form that upstream's number speller uses, and for codes."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.rules import Rule, rule

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ["", " thousand", " million", " billion", " trillion"]

MAX_CARDINAL_DIGITS = 15
"""Longer runs of digits are card or serial numbers: they are read digit by digit."""


def cardinal(number: int) -> str:
    """1999 -> ``one thousand, nine hundred and ninety-nine``; at most ``MAX_CARDINAL_DIGITS`` digits."""
    groups = _thousands(number)
    words = [_below_thousand(group) + scale for group, scale in zip(groups, _SCALES, strict=False) if group]
    if not words:
        return _SMALL[0]
    if len(words) > 1 and 0 < groups[0] < 100:
        return ", ".join(reversed(words[1:])) + " and " + words[0]
    return ", ".join(reversed(words))


def digits(text: str) -> str:
    """007 -> ``zero zero seven``."""
    return " ".join(_SMALL[int(digit)] for digit in text)


def integer(text: str) -> str:
    """A run of digits: as a cardinal, or digit by digit with a leading zero or when very long."""
    if len(text) > MAX_CARDINAL_DIGITS or (text.startswith("0") and len(text) > 1):
        return digits(text)
    return cardinal(int(text))


def decimal(text: str) -> str:
    """1,000.50 -> ``one thousand point five zero``; commas group, one dot at most."""
    whole, dot, fraction = text.replace(",", "").partition(".")
    words = [integer(whole)] if whole else []
    return " ".join(words + (["point", digits(fraction)] if dot else []))


def _thousands(number: int) -> list[int]:
    groups = []
    while number:
        number, group = divmod(number, 1000)
        groups.append(group)
    return groups


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest:
        words.append(_below_hundred(rest))
    return " and ".join(words)


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")


_PHONE = (
    r"(?<![\w.])(?:\+[0-9]{1,3}[ .-]?|1[ .-])?(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?!\w)"
    r"|(?<![\w.])\+[0-9]{1,3}(?:[ -][0-9]{2,8}){2,5}(?!\w)"
    r"|(?<![\w.-])[0-9]{3}-[0-9]{4}(?![\w-])"
)
_ALWAYS_NAMES = r"ISBN(?:-1[03])?|ISSN|PIN|SSN|passcode|password|extension|ext\.?|zip(?: code)?|flight"
_MOSTLY_NAMES = r"account|card|code|serial|order|tracking|ticket|invoice|case|license|number|no\."
_BEFORE = r"(?: (?:number|no\.|code|is)){0,2}:? ?#? ?[A-Z]{0,3}"
_END = r"(?!\w|,[0-9]|\.[0-9])"
_EMERGENCY = r"911|999|112|988|[2-8]11"


def code_rules() -> list[Rule]:
    """Rules for codes, in order of application; dates and times that look like codes were read before."""
    return [
        rule(_PHONE, _groups),
        rule(
            rf"\b((?i:{_ALWAYS_NAMES}){_BEFORE}) ?([0-9](?:[ -]?[0-9]){{2,18}}(?:-?[Xx])?){_END}",
            _named,
        ),
        rule(
            rf"\b((?i:{_MOSTLY_NAMES}){_BEFORE})(?![0-9]+000{_END})([0-9]{{5,}}(?:-[0-9]+)*){_END}",
            _named,
        ),
        rule(
            rf"\b((?i:call|dial|calling|dialing) )({_EMERGENCY})\b(?! (?:people|of|[a-z]+s)\b)",
            _named,
        ),
        rule(r"(?<![\w.,])[0-9]{4}(?: [0-9]{4}){3}(?![\w,])", _groups),
        rule(r"(?<![\w.,-])[1-9][0-9]?(?:-[1-9][0-9]?){2,}(?![\w-])", _listed),
        rule(r"(?<![\w.,-])[0-9]+(?:-[0-9]+){2,}(?![\w-])", _groups),
        rule(r"(?<![\w.,-])(?:[0-9]{5,}-[0-9]{3,}|[0-9]+-0[0-9]+|0[0-9]+-[0-9]+)(?![\w-])", _groups),
        rule(r"(?<![\w.,])(?![0-9]*000000(?![0-9]))[0-9]{10,}" + _END, _groups),
    ]


def _groups(match: re.Match[str]) -> str:
    plus = "plus " if match[0].startswith("+") else ""
    return plus + _read(match[0])


def _listed(match: re.Match[str]) -> str:
    return match[0].replace("-", ", ")


def _named(match: re.Match[str]) -> str:
    name = match[1].rstrip("# ")
    return f"{name} {_read(match[2])}"


def _read(code: str) -> str:
    groups = ", ".join(map(digits, re.findall("[0-9]+", code)))
    return f"{groups}, X" if code[-1] in "Xx" else groups
