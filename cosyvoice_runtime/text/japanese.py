"""Japanese text: numbers in words."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.rules import EAST_ASIAN_NUMERALS, Read, Rule, apply, plain, read_by_clause, rule

_LETTERS = "\u3005\u3007\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u9fff"
# Bounded, since the library holds the interpreter's lock for about 0.5 ms per character.
_CLAUSE = re.compile(rf"(?:[{_LETTERS}0-9A-Za-z%$€£¥~+\-=/ ]|[.:,](?=[0-9A-Za-z])){{1,120}}")
_DIGITS = dict(zip(map(ord, "0123456789"), ["ゼロ", *"一二三四五六七八九"], strict=True))
_TEMPERATURE = r"(?<![0-9.])([-+])?([0-9]+(?:\.[0-9]+)?)\s?(?:℃|°C|度C)"


def _digits(match: re.Match[str]) -> str:
    return match[0].translate(_DIGITS)


def _telephone(match: re.Match[str]) -> str:
    return "の".join(re.findall("[0-9]+", match[0])).translate(_DIGITS)


def _address(match: re.Match[str]) -> str:
    signs = {"@": "アットマーク", ".": "ドット", "/": "スラッシュ", "-": "ハイフン", "_": "アンダーバー"}
    address = re.sub("^https?://", "", match[0]).rstrip("/")
    return "".join(signs.get(character, character) for character in address).translate(_DIGITS)


_PREPARE: list[Rule] = [
    rule(r"https?://[\w./%#?=&+~@-]{1,100}", _address),
    rule(r"(?<![\w.+-])[A-Za-z0-9.+_-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5}", _address),
    rule(
        r"(?<![0-9A-Za-z.-])(?:[A-Za-z0-9-]{1,63}\.){1,5}(?:com|org|net|io|jp|dev|ai)(?![0-9A-Za-z])",
        _address,
    ),
    rule(r"〒\s?([0-9]{3})-([0-9]{4})", lambda match: "郵便番号" + _telephone(match)),
    rule(r"(?<![0-9-])(?:\(0[0-9]{1,4}\)\s?|0[0-9]{1,4}-)[0-9]{1,4}-[0-9]{3,4}(?![0-9-])", _telephone),
    rule(r"(?<![0-9-])[0-9]+(?:-[0-9]+){2,}(?![0-9-])(?<![12][0-9]{3}-[0-9]{2}-[0-9]{2})", _telephone),
    rule(r"(?<![0-9.])[0-9]+(?:\.[0-9]+){2,}(?![0-9])", lambda match: _digits(match).replace(".", "点")),
    rule(r"(?<=[0-9%])\s?[〜～~–]\s?(?=[0-9])", "から"),
    rule(_TEMPERATURE, lambda match: ("マイナス" if match[1] == "-" else "") + match[2] + "度"),
]
"""Shapes that the library misreads, rewritten to ones that it reads right."""


def read_numbers(text: str, library: Read) -> str:
    """Numbers of a text (no special tokens in it) in Japanese words, clause by clause."""
    return read_by_clause(_CLAUSE, apply(_PREPARE, plain(text)).translate(EAST_ASIAN_NUMERALS), library)
