"""Brackets around what a number is multiplied with, in which signs are those of a formula."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages.place import Place

BEFORE_FACTOR = r"\s?[×÷*]\s?(?!10[\^⁰¹²³⁴-⁹])[0-9(（]"
"""Source for the sign after what is multiplied; none before a power of ten, which a range may have."""
_TERMS = r"(?:[0-9.]+%?\s?[-+×÷*/−]\s?)"
_BEFORE = re.compile(rf"(?P<factor>[0-9)）]\s?[×÷*]\s?)?(?P<in>[(（]{_TERMS}{{0,5}}[0-9.]*%?\s?)\Z")
_AFTER = re.compile(rf"\s?[-+−]?\s?{_TERMS}{{0,5}}[0-9.]+%?[)）](?P<factor>{BEFORE_FACTOR})?")
_RANGE = re.compile(r"[(（]([0-9]{1,9})[-–]([0-9]{1,9})[)）](?![^\n，。,;]{0,24}=)")


def in_factor(place: Place) -> bool:
    """Whether a number or sign stands in such brackets, as that in ``24×(1-1/3)`` does."""
    before = _BEFORE.search(place.before)
    after = place.match(_AFTER) if before else None
    if not before or not after or not (before["factor"] or after["factor"]):
        return False
    return not is_range(place.text, place.start - len(before["in"]))


def is_range(text: str, start: int) -> bool:
    """Whether brackets hold two whole numbers of which the second is larger, and no equals sign follows."""
    found = _RANGE.match(text, start)
    return found is not None and int(found[1]) < int(found[2])
