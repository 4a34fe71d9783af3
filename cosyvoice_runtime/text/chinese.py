"""Chinese text: numbers in words, and the clean-up of spaces, brackets and marks that upstream does."""

from __future__ import annotations

import re
from collections.abc import Callable

Read = Callable[[str], str]

_HAN = "\u3007\u3400-\u9fff"
# Bounded, since the library holds the interpreter's lock for about 0.5 ms per character.
_CLAUSE = re.compile(rf"(?:[{_HAN}0-9A-Za-z%°℃℉$€£¥~+\-=×÷*/²³ ]|[.:,](?=[0-9A-Za-z])){{1,120}}")
_HALF_WIDTH = str.maketrans("０１２３４５６７８９％￥＄", "0123456789%¥$")
_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_TELEPHONE_DIGITS = str.maketrans("0123456789", "零幺二三四五六七八九")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_MONEY = {"¥": "元", "$": "美元", "€": "欧元", "£": "英镑"}

_PREPARE: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<![0-9,.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])"), lambda match: match[0].replace(",", "")),
    (
        re.compile(r"(?<![0-9])(\+?86[ -]?)?(1[3-9][0-9])[ -]?([0-9]{4})[ -]?([0-9]{4})(?![0-9])"),
        lambda match: re.sub("[^0-9]", "", match[0]).translate(_TELEPHONE_DIGITS),
    ),
    (
        re.compile(r"(?<![0-9.])[0-9]+(?:\.[0-9]+){2,}(?![0-9])"),
        lambda match: match[0].translate(_DIGITS).replace(".", "点"),
    ),
    (re.compile(r"(?<![0-9.])[0-9]{12,}(?![0-9.])"), lambda match: match[0].translate(_DIGITS)),
    (
        re.compile(r"(?<![0-9-])((?:19|20)[0-9]{2})[-–~]((?:19|20)[0-9]{2})(?![0-9-])"),
        lambda match: f"{match[1]}到{match[2]}".translate(_DIGITS),
    ),
    (
        re.compile(
            r"(?<![0-9A-Za-z.-])[0-9A-Za-z-]{1,63}(?:\.[0-9A-Za-z-]{1,63}){0,5}\.[A-Za-z]{2,}(?![0-9A-Za-z])"
        ),
        lambda match: match[0].translate(_DIGITS).replace(".", "点"),
    ),
    (re.compile(r"第2(?![0-9])"), lambda _: "第二"),
    (re.compile(r"(?<=[A-Za-z])-(?=[0-9])"), lambda _: ""),
    (
        re.compile(rf"([¥$€£])\s?({_NUMBER})(?: ?([十百千万亿]+))?(?:\s?(元|美元|欧元|英镑))?"),
        lambda match: _plain_decimal(match[2]) + (match[3] or "") + (match[4] or _MONEY[match[1]]),
    ),
    (re.compile("㎡"), lambda _: "平方米"),
]
"""Shapes that the library misreads, rewritten to ones that it reads right."""


def read_numbers(text: str, library: Read) -> str:
    """Numbers of a text (no special tokens in it) in Chinese words, clause by clause."""
    text = text.translate(_HALF_WIDTH)
    for pattern, replacement in _PREPARE:
        text = pattern.sub(replacement, text)
    return _CLAUSE.sub(lambda clause: _read_clause(clause[0], library), text)


def clean(text: str, following: str = "") -> str:
    """Spaces, brackets and marks as upstream leaves them.

    Args:
        following: first character after this part of the text, if there is one.
    """
    text = drop_blanks(re.sub("[ \n\r\t]*[\n\r\t][ \n\r\t]*", " ", text), following)
    text = text.replace("²", "平方").replace("³", "立方")
    # Upstream turns every dot into a full stop, even those of 3.14 and www.example.com.
    text = re.sub(r"(?<![0-9A-Za-z])\.|\.(?![0-9A-Za-z])", "。", text)
    return remove_brackets(text.replace(" - ", "，"))


def drop_blanks(text: str, following: str = "") -> str:
    """Spaces only where both neighbours are ASCII and no spaces, as between English words."""
    padded = f" {text}{following or ' '}"
    return "".join(
        character
        for index, character in enumerate(text, start=1)
        if character != " " or (_is_latin(padded[index - 1]) and _is_latin(padded[index + 1]))
    )


def remove_brackets(text: str) -> str:
    """Chinese brackets and backticks away, a long dash as a space."""
    return re.sub("[（）【】`]", "", text).replace("——", " ")


def end_commas(text: str) -> str:
    """A comma at the very end made a full stop."""
    return re.sub("[，,、]+$", "。", text)


def _read_clause(clause: str, library: Read) -> str:
    if not re.search("[0-9]", clause):
        return clause
    words = clause.strip(" ")
    before, after = clause.split(words, 1)
    return before + library(words) + after


def _plain_decimal(number: str) -> str:
    """45.50 -> 45.5: a trailing zero of an amount isn't spoken."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def _is_latin(character: str) -> bool:
    return character.isascii() and character != " "
