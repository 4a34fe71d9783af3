"""Amounts that belong to the noun after them, whose units have no plural: ``a $60M valuation``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import english_words as listed
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
