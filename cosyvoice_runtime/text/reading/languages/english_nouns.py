"""Amounts that belong to the noun after them, whose units have no plural: ``a $60M valuation``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.language import alternatives
from cosyvoice_runtime.text.reading.languages.place import Place

_ARTICLE = re.compile(r"(?:(?<![\w'’])(?:an?|An)|(?:\A|[.!?:;(\"“\n]\s?)A)\s\Z")
_DETERMINED = re.compile(
    r"(?<![\w'’])(?i:the|this|his|her|their|our|my|your|its|whose|an?"
    r"|(?!(?:it|that|there|he|she|what|here|let)['’])\w{2,}['’]s)"
    r"(?: (?:new|recent|massive|huge|record|whopping|reported|planned|initial|single|small|big|large|hefty|"
    r"crisp|short|long|quick|modest|generous|staggering|brisk|easy|steep|daily|weekly|monthly|annual|"
    r"original|"
    r"proposed|final|first|last|next|latest|standard|typical|average|simple))?\s\Z"
)
_DEVICE = re.compile(
    r"[ -](?:OLED|AMOLED|LCD|LED|IPS|TV|TVs|SSD|HDD|iPad|iPhone|MacBook|USB|AC|DC|PSU|GPU|UPS|"
    r"monitor|touchscreen|"
    r"Retina|HDTV|QLED|Kindle|tablet|laptop|Mini-LED)(?![A-Za-z])"
)
_NOUN = re.compile(r"\s([a-z]{3,})(?![\w'’])|-[a-z]{3,}")

_COUNTED = re.compile(
    r"\s(?:square|cubic|feet|foot|inch(?:es)?|yards?|(?:centi|milli|kilo)?met(?:er|re)s?|miles?|percent|degrees|"
    r"seconds?|minutes?|hours?|days?|weeks?|months?|years?|dollars|euros|pounds|people|persons?|guests|seats|"
    r"passengers|beds|bytes|characters|digits|letters|lines|words|pages|files|times|per|"
    r"[x×] ?[0-9]|by [0-9]|or (?:more|less|so)|more|less|an? (?:night|day|week|month|year|person|head))"
    r"(?![\w])|/(?:night|day|week|month|person)\b|\s?[x×]\s?[0-9]"
)


_CHINA = re.compile(
    r"\b(?:RMB|CNY|[Yy]uan|[Rr]enminbi|China|Chinese|Beijing|Shanghai|Shenzhen|Guangzhou|Chengdu|Hangzhou|"
    r"Xi['’]an|Wuhan|Nanjing|Chongqing|Suzhou|Alipay|WeChat|Taobao|JD\.com|Alibaba|Meituan|Mandarin)\b"
    r"|人民币|中国"
)
_JAPAN = re.compile(
    r"\b(?:JPY|[Yy]en|Japan|Japanese|Tokyo|Osaka|Kyoto|Hokkaido|Sapporo|Okinawa|Fukuoka|Nagoya|Hiroshima|"
    r"Nara|Hakone|Narita|Shinkansen|Suica|Pasmo|JR|[Rr]amen|[Ss]ushi|BOJ|Nikkei)\b|日[本元圆円]|东京|大阪|京都|[\u3040-\u30ff]"
)
_CLAUSE_END = re.compile(r"[,;:] |[.!?]\s|\s(?:and|but|vs\.?|versus|while|than|or)\s|\n")
_NEAR = 300


def is_about_japan(text: str) -> bool:
    """Whether a text names Japan, and not China."""
    return bool(_JAPAN.search(text)) and not _CHINA.search(text)


def is_about_china(place: Place) -> bool:
    """Whether the nearest word around that names China or Japan names China."""
    before = place.text[max(0, place.start - _NEAR) : place.start]
    after = place.text[place.start : place.start + _NEAR]
    clause = _CLAUSE_END.split(before)[-1] + _CLAUSE_END.split(after, maxsplit=1)[0]
    china, japan = (bool(each.search(clause)) for each in (_CHINA, _JAPAN))
    if china != japan:
        return china
    start, text = len(before), before + after
    near, far = (
        min((abs(found.start() - start) for found in each.finditer(text)), default=_NEAR + 1)
        for each in (_CHINA, _JAPAN)
    )
    return near < far


def is_amount(place: Place, end: int, units: Iterable[str]) -> bool:
    """Whether a unit, a size or what is counted follows a number: ``The room is 120 sq ft.``."""
    return bool(_COUNTED.match(place.text, end) or _unit(tuple(units)).match(place.text, end))


@cache
def _unit(units: tuple[str, ...]) -> re.Pattern[str]:
    """A unit after a number; none of those that are words, too."""
    spoken = alternatives(unit for unit in units if unit not in ("in", "at", "as", "a", "A", "I", "am"))
    return re.compile(rf"\s?(?:{spoken})(?![\w])")


def qualifies(place: Place, end: int) -> bool:
    """Whether an amount from a place to ``end`` says of what size the noun after it is."""
    following = _NOUN.match(place.text, end)
    word = following[1] if following else ""
    if _DEVICE.match(place.text, end):
        return True
    if word in listed.HEADS or place.text.startswith("-a-", end):
        return True
    before = place.before
    if _ARTICLE.search(before):
        return not (following is None and place.text[end : end + 1] in ("", ".", "?", "!"))
    if not following or not word or word in listed.NO_NOUNS or word.endswith(("ed", "ly", "ing")):
        return False
    return bool(_DETERMINED.search(before))
