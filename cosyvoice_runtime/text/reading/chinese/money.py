"""Amounts of money: ``¥50-80``, ``HK$50``, ``EUR 20``, ``100 USD``, ``$3万``, ``¥299/月``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import NUMBER, RANGE, parsed, times
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.chinese import without_zeros
from cosyvoice_runtime.text.reading.languages.language import Currency, Language, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_SIGN = alternatives(sign for sign in tables.CURRENCIES if not sign.isalpha())
_CODE = alternatives(code for code in tables.CURRENCIES if code.isalpha())
_SUFFIX = alternatives(sign for sign in tables.CURRENCIES if len(sign) == 1)
_SCALE = (
    r"(?:\s?(?P<scale>[十百千]?[万亿]|[十百千]|(?:[mb]illion|[kKmMbBtTwW])(?![A-Za-z]))(?:\s?(?=[多余]))?)?"
)
_NAME = r"(?:\s?(?P<name>(?:美|欧|日|港|澳|加|韩)?元|英镑|人民币|块钱?))?"
_ZEROS = {"k": 3, "w": 4, "m": 6, "b": 9, "million": 6, "billion": 9}
"""Zeros that a letter after an amount stands for."""
_BEFORE = re.compile(
    rf"(?P<minus>(?<![0-9A-Za-z])[-−]\s?)?(?:(?P<sign>(?<!\$)(?<!\$[A-Z]){_SIGN})|(?<![A-Za-z])(?P<code>{_CODE})(?![A-Za-z]))\s?(?P<inner>[-−])?"
    rf"(?P<low>{NUMBER}){_SCALE}(?:{RANGE}(?:{_SIGN})?(?P<high>{NUMBER})(?![0-9-]))?"
    rf"{_SCALE.replace('<scale>', '<last>')}{_NAME}"
)
_AFTER = re.compile(
    rf"(?P<low>{NUMBER})(?:{RANGE}(?P<high>{NUMBER}))?{_SCALE.replace('<scale>', '<last>')}\s?"
    rf"(?:(?P<sign>{_SUFFIX})(?!\s?[0-9])|(?P<code>{_CODE})(?![A-Za-z0-9]))"
)


_TAIWAN = re.compile(r"新?台币\s?\Z")
_JAPANESE = re.compile("日[元圆圓币]|日本|东京|大阪|京都")
_CHINESE = re.compile("人民币|国内|中国|CNY|RMB")
_AMERICAN = re.compile(r"美[元金]|US\$")
_DOLLARS = ((re.compile(r"HK\$|港[币元铁]|香港|八达通"), "港元"), (re.compile(r"NT\$|台币|台北|台湾"), "元"))
"""Places whose dollar has the mere sign, and its name."""


def read(place: Place) -> ReadForm | None:
    """An amount, or a range of amounts."""
    found = place.match(_BEFORE)
    if found:
        word = "" if found["name"] else _local(found["sign"], place)
        words = _words(found, place.language, Currency(word, word) if word else None)
        return ReadForm(found.end(), _named_first(words, place))
    if not place.text[place.start].isdecimal():
        return None
    found = place.match(_AFTER)
    return ReadForm(found.end(), _named_first(_words(found, place.language), place)) if found else None


def _named_first(words: str, place: Place) -> str:
    """``NT$600`` is 新台币六百元; the name is not said again after itself."""
    if not words.endswith(tables.TAIWAN):
        return words
    return ("" if _TAIWAN.search(place.before) else "新台币") + words.removesuffix("新台币")


def _local(sign: str, place: Place) -> str:
    """The name of a mere sign in the country that the text is about; empty where it is the usual one."""
    if sign == "¥" and not place.near(_CHINESE):
        return "日元" if place.near(_JAPANESE) else ""
    if sign != "$" or place.near(_AMERICAN):
        return ""
    return next((word for near, word in _DOLLARS if place.near(near)), "")


def _words(found: re.Match[str], language: Language, currency: Currency | None = None) -> str:
    parts = found.groupdict()
    sign = parts["sign"] or parts["code"]
    name = parts.get("name")
    if name and not (name == "元" and len(sign) > 1):
        currency = Currency(name, name)
    currency = currency or language.currencies[sign]
    minus = language.minus if parts.get("minus") or parts.get("inner") else ""
    scale, last = (re.sub("[tT]", "万亿", parts.get(name) or "") for name in ("scale", "last"))
    low = without_zeros(parsed(parts["low"], language))
    if zeros := _ZEROS.get((last or scale).lower()):
        amounts = [parsed(parts[name], language) for name in ("low", "high") if parts[name]]
        numbers = [language.cardinal(times(each, zeros)) for each in amounts]
        return f"{minus}{language.to.join(numbers)}{currency.one}"
    if not parts["high"]:
        scale = scale + last
        if not scale:
            return f"{minus}{language.counted(low, currency)}"
        number = language.number(low)
        number = "两" if number == "二" and scale[0] != "十" else number
        return f"{minus}{number}{scale}{currency.one}"
    high = without_zeros(parsed(parts["high"], language))
    words = language.ranged(f"{language.number(low)}{scale}", f"{language.number(high)}{last}")
    return f"{minus}{words}{currency.one}"
