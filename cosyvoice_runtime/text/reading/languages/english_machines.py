"""English: what machines write and are told: ``#FF5733``, ``Ctrl+C``, ``2024-03-10T14:30Z``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.initials import INITIALS
from cosyvoice_runtime.text.reading.languages.language import Clock, Date
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_MOMENT = re.compile(
    r"(?<![\w.-])([12][0-9]{3})-(0[1-9]|1[0-2])-([0-2][0-9]|3[01])T([01][0-9]|2[0-4]):([0-5][0-9])"
    r"(?::([0-5][0-9])(?:[.,][0-9]{1,9})?)?(Z|[+−-][0-9]{2}(?::?[0-9]{2})?)?(?![\w:])"
)
_WEAKNESS = re.compile(r"(?<![\w-])(CVE|GHSA|RFC|CWE)-([12][0-9]{3})-([0-9]{4,7})(?![\w-])")
_COLOUR = re.compile(
    r"#(?=[0-9A-Fa-f]*(?:[0-9][A-Fa-f]|[A-Fa-f][0-9])|[Ff]{3}|0{3})([0-9A-Fa-f]{6}|[0-9A-Fa-f]{3})(?!\w)"
)
_GREY = re.compile(r"#([0-9]{6}|[0-9]{3})(?!\w)")
_PAINTED = re.compile(r"(?i)\b(?:colou?r|background|fill|border|hex)(?:-color)?(?: (?:code|is|of|to))?:? ?\Z")
_HARDWARE = re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])")
_HOST6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:]*[0-9])(?=[0-9A-Fa-f:]*::|(?:[0-9A-Fa-f]{1,4}:){7})"
    r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:/[0-9]{1,3})?(?![\w:])"
)
_UNIQUE = re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])")
_MODIFIERS = {
    "Ctrl": "Control", "CTRL": "Control", "Control": "Control", "Cmd": "Command", "CMD": "Command",
    "Command": "Command", "Alt": "Alt", "Option": "Option", "Opt": "Option", "Shift": "Shift",
    "Win": "Windows", "Windows": "Windows", "Meta": "Meta", "Fn": "Function", "Super": "Super", "Tab": "Tab",
    "⌘": "Command", "⌥": "Option", "⇧": "Shift", "⌃": "Control",
}  # fmt: skip
_KEYS = {
    "Esc": "Escape", "Del": "Delete", "Ins": "Insert", "PgUp": "Page Up", "PgDn": "Page Down",
    "PrtSc": "Print Screen", "+": "plus", "-": "minus", "/": "slash", "\\": "backslash",
    ",": "comma", ".": "period", "`": "backtick", "[": "left bracket", "]": "right bracket", ";": "semicolon",
    "'": "quote", "=": "equals", "↑": "up", "↓": "down", "←": "left", "→": "right", "↵": "Enter",
}  # fmt: skip
_SHORTCUT = re.compile(
    rf"(?<![\w+])(?:{'|'.join(_MODIFIERS)})(?:\s?\+\s?(?:[A-Za-z0-9]{{1,9}}(?!\w)|[^\w\s])|-(?:[A-Za-z](?!\w)|[A-Z][a-z]{{2,8}}(?=-)))"
    r"(?:\s?[+-]\s?(?:[A-Za-z0-9]{1,9}(?!\w)|[^\w\s,.;:]))?(?:\s?\+\s?[A-Za-z0-9]{1,9}(?!\w))?"
    r"|[⌘⌥⇧⌃]{1,3}\s?\+?\s?[A-Za-z0-9](?!\w)"
)
_PART_OF_SHORTCUT = re.compile(r"[A-Za-z]+|[0-9]+|[^\s]")
_STATUS = re.compile(
    r"(?<![\w.,])([1-5][0-9]{2})(?!\w|[.,:/-][0-9]|[%°])"
    r"( (?:(?:error|status|response|redirect|page)s?|Not Found|Bad|Forbidden|Internal|Gateway|Too Many)\b)?"
)
_PORT = re.compile(r"(?<![\w.,])([0-9]{3,5})(?!\w|[.,:/-][0-9])")
_SERVED = re.compile(
    r" \((?:SSH|SFTP|FTP|DNS|HTTPS?|SMTP|IMAPS?|POP3|NTP|LDAP|RDP|MySQL|Postgre\w*|Redis|"
    r"MongoDB|TCP|UDP|TLS)\b"
)
_CRON = re.compile(
    r"(?<![\w*/])(?=[^\n]{0,24}\*)(?:(?:\*(?:/[0-9]+)?|[0-9]+(?:[-,/][0-9]+)*) ){4}"
    r"(?:\*|[0-9](?:[-,][0-9])*)(?![\w*])"
)
_VERSIONED = re.compile(
    r"\b(?:Python|PHP|Go|Ruby|Java|Kotlin|Django|Ubuntu|Node|Rust|Kubernetes|[Vv]ersions?)"
    r" v?[0-9]{1,2}\.[0-9]"
)
_VERSION = re.compile(
    r"(?<![0-9.,])([0-9]{1,3})\.([0-9]{2})(?![\w%]|[.,][0-9]|\s?(?:million|billion))(\+(?!\w))?"
)
_SCREEN = re.compile(
    r"(?<![\w.,×])([1-9][0-9]{2,3})\s?[x×]\s?([1-9][0-9]{2,3})(?![\w.,×²]| ?(?:mm|cm|m|ft|in)\b)"
)
_PRODUCT = re.compile(r"\s?[=≈]")
_BINARY = re.compile(r"(?<![\w])0b([01]{2,16})(?!\w)")
_WIRELESS = re.compile(r"(?<![\w.,])802\.([0-9]{1,2})([A-Za-z]{0,2})(?![\w])")
_SYSTEMS = re.compile(r"(?<![\w.,/])([0-9]{1,2})/([0-9]{1,2})(?![\w/]|[.,][0-9])")
_INDICES = re.compile(r"(?<![\w.])([0-9]{1,6})\.\.([0-9]{1,6})(?!\w|\.[0-9.])")
_COMPARED = {
    "=": "equals", "===": "triple equals", "!==": "not triple equals", "==": "double equals",
    "!=": "not equals",
    ">=": "greater than or equal to", "<=": "less than or equal to", "&&": "and", "||": "or",
    "=>": "arrow", "->": "arrow",
}  # fmt: skip
_ALONE = re.compile(r"(?<![^\s,;:(])(?:(?<=[,;:(] )=|[!=]==?|[<>]=|&&|[|]{2}|[-=]>)(?=[ ,)] ?[a-z])")
_AMONG_VERSIONS = frozenset(("vs", "and", "or", "to", "in", "from", "since", "than", "with", "on", "until"))
_NOT = re.compile(r"(?<![^\s(])!(?!important)(?=[a-z])")
_FLAG = re.compile(r"-(?=[0-9])")
_COMMAND = re.compile(r"(?:\b(?:kill|head|tail|git log)| --[a-z]+) \Z")
_PERCENT = re.compile(r"(?<![^\s(])% (?=[a-z]{4})")
_CARET = re.compile(r"(?<![\w)\]}|²³])\^(?=[0-9]{1,3}\.[0-9])")
_SIZE_OF_BOLT = re.compile(r"(?<=M[0-9])[x×](?=[0-9])|(?<=M[0-9][0-9])[x×](?=[0-9])")
_AND_BELOW = re.compile(r",(?=[<>!]=?[0-9])")
_UP_TO_HOST = re.compile(r"(?<=[0-9]) ?[-–] ?(?=(?:[0-9]{1,3}\.){3}[0-9])")
_SUBNET = re.compile(r"(?<![^\s(])/(?=[0-9]{1,3}(?![\w/]))")
_ADDED = re.compile(r"(?<=chmod )(?:[augo]{0,3})\+(?=[rwxst]{1,3}(?!\w))")
_BACK = re.compile(r"(?<=HEAD)[~^](?=[0-9])")
_PUBLISHED = re.compile(r"([1-9][0-9]{1,4}):([1-9][0-9]{1,4})(?!\w)")
_LOCAL = re.compile(r"(?<=localhost):([0-9]{2,5})(?![0-9])")
_NAME_PLUS = re.compile(r"(\+{1,2})(?=[\s,.;:!?)\"”'’]|$)")
_NAMED = re.compile(r"(?<![\w+])[A-Z][A-Za-z]+[0-9]{0,3}\Z")


def digits(place: Place, language: Language) -> ReadForm | None:
    """A moment, an address of a machine, a status, a port or a version."""
    for pattern, read in ((_MOMENT, _moment), (_HARDWARE, _hardware)):
        if found := place.match(pattern):
            return ReadForm(found.end(), read(found, language))
    if found := place.match(_CRON):
        return ReadForm(found.end(), _fields(found[0], language))
    if (found := place.match(_SCREEN)) and not _PRODUCT.match(place.text, found.end()):
        return ReadForm(found.end(), f" {language.by} ".join(map(language.name_number, found.groups())))
    if found := place.match(_BINARY):
        return ReadForm(found.end(), f"zero b {language.digits(found[1])}")
    if found := place.match(_INDICES):
        return ReadForm(
            found.end(), language.ranged(language.cardinal(found[1]), language.cardinal(found[2]))
        )
    if found := place.match(_WIRELESS):
        return ReadForm(found.end(), " ".join(("eight oh two", language.cardinal(found[1]), *found[2])))
    if found := place.match(_VERSION):
        return _version(found, place, language)
    before = place.word_before
    if before in listed.VERSIONED and (found := place.match(_SYSTEMS)):
        words = (language.cardinal(part) for part in found.groups())
        return ReadForm(found.end(), f"{language.pause} ".join(words))
    if (found := place.match(_STATUS)) and (before in listed.BEFORE_STATUS or found[2]):
        return ReadForm(found.end(1), _called(found[1], language))
    if (before in ("port", "ports") or place.before.endswith("-p ")) and (found := place.match(_PUBLISHED)):
        return ReadForm(found.end(), language.ranged(*map(language.name_number, found.groups())))
    found = place.match(_PORT)
    if found and (place.before.endswith("-p ") or _SERVED.match(place.text, found.end())):
        return ReadForm(found.end(), language.name_number(found[1]))
    if before in ("port", "ports") and (found := place.match(_PORT)):
        return ReadForm(found.end(), language.name_number(found[1]))
    return spelled(place, language)


def letters(place: Place, language: Language) -> ReadForm | None:
    """A weakness of software, an address of a machine, or keys to press."""
    if found := place.match(INITIALS):
        return ReadForm(found.end(), found[0].upper())
    if found := place.match(_WEAKNESS):
        return ReadForm(
            found.end(), f"{found[1]} {language.year(int(found[2]))}, {language.digits(found[3])}"
        )
    if found := place.match(_HARDWARE):
        return ReadForm(found.end(), _hardware(found, language))
    if found := place.match(_SHORTCUT):
        return ReadForm(found.end(), _shortcut(found[0], language))
    return spelled(place, language)


def signs(place: Place, language: Language) -> ReadForm | None:
    """A colour, keys of a Mac, or a port after a colon."""
    if found := place.match(_COLOUR) or (place.match(_GREY) if _PAINTED.search(place.before) else None):
        return ReadForm(found.end(), f"hash {_spelled(found[1].upper(), language)}")
    if found := place.match(_SHORTCUT):
        return ReadForm(found.end(), _shortcut(found[0], language))
    if found := place.match(_ALONE):
        return ReadForm(found.end(), _COMPARED[found[0]])
    if (found := place.match(_NOT)) or (place.match(_FLAG) and _COMMAND.search(place.before)):
        return ReadForm(place.start + 1, "not " if found else f"{language.signs['-']} ")
    if found := place.match(_PERCENT):
        return ReadForm(found.end(), f"{language.units['%'].one} ")
    if found := place.match(_CARET):
        return ReadForm(found.end(), "caret ")
    if found := place.match(_CRON):
        return ReadForm(found.end(), _fields(found[0], language))
    if found := place.match(_SIZE_OF_BOLT):
        return ReadForm(found.end(), f" {language.by} ")
    if found := place.match(_AND_BELOW):
        return ReadForm(found.end(), f"{language.pause} ")
    if (found := place.match(_NAME_PLUS)) and _NAMED.search(place.before):
        return ReadForm(found.end(), f" {language.plus}" * len(found[1]))
    if found := place.match(_UP_TO_HOST):
        return ReadForm(found.end(), f" {language.to} ")
    if found := place.match(_ADDED):
        return ReadForm(found.end(), "plus ")
    if found := place.match(_SUBNET):
        return ReadForm(found.end(), f"{language.signs['/']} ")
    if found := place.match(_BACK):
        return ReadForm(found.end(), f" {language.signs['~']} ")
    if found := place.match(_LOCAL):
        return ReadForm(found.end(), f" colon {language.name_number(found[1])}")
    found = place.match(_HOST6)
    return ReadForm(found.end(), _host(found[0], language)) if found else None


def spelled(place: Place, language: Language) -> ReadForm | None:
    """An identifier or a host, character by character."""
    if found := place.match(_UNIQUE):
        return ReadForm(found.end(), ", ".join(_spelled(part, language) for part in found[0].split("-")))
    found = place.match(_HOST6)
    return ReadForm(found.end(), _host(found[0], language)) if found else None


def _moment(found: re.Match[str], language: Language) -> str:
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    date = language.date(Date(month, day, year, day_first=True))
    time = language.clock(Clock(hour, minute))
    seconds = f" and {language.cardinal(str(second))} second{'' if second == 1 else 's'}" if second else ""
    zone = found[7] or ""
    if not zone:
        return f"{date} at {time}{seconds}"
    if zone == "Z" or not zone.strip("+-−0:"):
        return f"{date} at {time}{seconds} UTC"
    hours, minutes = int(zone[1:3]), zone[3:].lstrip(":")
    sign = language.plus if zone[0] == "+" else language.minus
    offset = language.cardinal(str(hours)) + (f" {language.cardinal(minutes)}" if minutes.strip("0") else "")
    return f"{date} at {time}{seconds} UTC {sign} {offset}"


def _fields(written: str, language: Language) -> str:
    """The fields of a table of times: ``*/15 * * * 1-5``."""
    names = {"*": "star", "/": language.signs["/"], "-": language.to, ",": language.pause}
    pieces = re.findall(r"[0-9]+|[*/,-]", written)
    return " ".join(language.cardinal(each) if each.isdecimal() else names[each] for each in pieces)


def _hardware(found: re.Match[str], language: Language) -> str:
    return ", ".join(_spelled(pair.upper(), language) for pair in found[0].split(found[1]))


def _host(written: str, language: Language) -> str:
    parts = re.findall(r"[0-9A-Za-z]|:|/[0-9]+", written)
    words = (
        language.signs[part] if part == ":"
        else f"slash {language.cardinal(part[1:])}" if part[0] == "/"
        else language.digits(part) if part.isdecimal()
        else part.upper()
        for part in parts
    )  # fmt: skip
    return " ".join(words)


def _spelled(written: str, language: Language) -> str:
    return " ".join(language.digits(each) if each.isdecimal() else each for each in written)


def _shortcut(written: str, language: Language) -> str:
    words: list[str] = []
    joined = True
    for part in _PART_OF_SHORTCUT.findall(written):
        if (part in "+-" and words and not joined) or (
            part == "+" and len(words) == 1 and written[0] in "⌘⌥⇧⌃"
        ):
            joined = True
            continue
        joined = part in "⌘⌥⇧⌃"
        if part.isdecimal():
            words.append(language.cardinal(part))
        else:
            words.append(_MODIFIERS.get(part) or _KEYS.get(part) or part)
    return " ".join(words)


def _called(code: str, language: Language) -> str:
    return language.cardinal(code) if code.endswith("00") else language.pairs(code)


def _version(found: re.Match[str], place: Place, language: Language) -> ReadForm | None:
    before = place.word_before
    if before not in listed.VERSIONED and not (before in _AMONG_VERSIONS and place.near(_VERSIONED)):
        return None
    minor = found[2]
    words = (
        f"oh {language.cardinal(minor[1])}"
        if minor[0] == "0" and minor[1] != "0"
        else language.cardinal(minor)
    )
    more = f" {language.plus}" if found[3] else ""
    return ReadForm(found.end(), f"{language.cardinal(found[1])} point {words}{more}")
