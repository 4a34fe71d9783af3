"""Ratios and sizes: ``16:9``, ``3-0`` of a match, ``1920x1080``, ``3 × 5``."""

from __future__ import annotations

import re
from functools import reduce

from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_RATIO = re.compile(
    r"(?a)(?<![\w.,:/-])([0-9]{1,4}(?:\.[0-9]+)?)(?:\s:\s?|:)([0-9]{1,4}(?:\.[0-9]+)?)(?![\w:]|[.,/][0-9])"
)
_SIZE = re.compile(
    r"(?a)(?<![\w.,])(?!0x)([0-9]+(?:\.[0-9]+)?)\s?[x×]\s?(?=[0-9]+(?:\.[0-9]+)?(?![A-Za-z]{3}))"
)
_PROPORTIONS = re.compile(r"(?a)(?<![\w.,:/-])[0-9]{1,3}(?::[0-9]{1,3}){2,4}(?![\w:]|[.,][0-9])")
_TIMES = re.compile(r"(?a)(?<![\w.,])([0-9]+(?:[.,][0-9]+)?)\s?×(?=\s+[^\W\d_]|[A-Z]{2}|\s*[.,;:!?)]|\s*\Z)")


def read(place: Place) -> ReadForm | None:
    """Two numbers with a colon between them, a size, or a factor: ``1.5× faster``."""
    language = place.language
    if found := place.match(_RATIO):
        numbers = [language.number(language.numerals.parse(found[part])) for part in (1, 2)]
        return ReadForm(found.end(), language.ratio(*numbers))
    if found := place.match(_PROPORTIONS):
        first, *others = map(language.cardinal, found[0].split(":"))
        return ReadForm(found.end(), reduce(language.ratio, others, first))
    if found := place.match(_SIZE):
        return ReadForm(
            found.end(),
            f"{language.number(language.numerals.parse(found[1]))}{language.space}{language.by}{language.space}",
        )
    if (found := place.match(_TIMES)) and language.operations:
        number = language.number(language.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{number}{language.space}{language.operations['×']}")
    return None
