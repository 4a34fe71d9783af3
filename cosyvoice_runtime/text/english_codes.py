"""English numbers that name something (telephones, cards, ISBNs, flights): read digit by digit."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.english_words import digits
from cosyvoice_runtime.text.rules import Rule, rule

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
    """In the order of application; dates and times that look like codes have been read before."""
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
