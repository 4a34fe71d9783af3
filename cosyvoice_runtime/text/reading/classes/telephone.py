"""Telephone numbers and other digits in groups: ``+1 415 555 0199``, ``020 7946 0958``, card numbers."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_GROUPED = (
    r"(?a)(?<![\w.])(?:\+[0-9]{1,3}[ .-]?|1[ .-])?(?:\([0-9]{3}\)[ -]?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}"
    r"(?:-[0-9]{4})?(?![\w-])"
    r"|(?<![\w.])\+[0-9]{1,3}(?:[ .-]\(?[0-9]{1,8}\)?){2,5}(?!\w|[.,][0-9])"
    r"|(?<![\w.])\+[0-9]{1,3} ?\(0\) ?[0-9]{1,5}(?:[ .-][0-9]{2,8}){1,4}(?![\w]|[.,][0-9])"
    r"|(?<![\w.])\+[0-9]{7,15}(?!\w|[.,][0-9])"
    r"|(?<![\w.,/-])0[0-9]{2,5}/[0-9]{4,9}(?:-[0-9]{1,4})?(?![\w/]|[.,][0-9])"
    r"|(?<![\w.,/-])0[0-9]{2,5}(?:/| [/–-] )[0-9]{2,4}(?: [0-9]{2,4}){1,3}(?![\w/]|[.,][0-9])"
    r"|(?<![\w.])\+[0-9]{1,3}[ .-][0-9]{6,10}(?!\w|[.,][0-9])"
    r"|(?<![\w.])\([0-9]{2,3}\) ?[0-9]{3,5}-[0-9]{4}(?![\w-])"
    r"|(?<![\w.,-])8[ -]?\(?[0-9]{3}\)?[ -][0-9]{3}-[0-9]{2}-[0-9]{2}(?![\w-])"
    r"|(?<![\w.,-])0[0-9](?:[ .-][0-9]{2}){4}(?![\w-]|[.,][0-9])"
    r"|(?<![\w.,-])\(?0[0-9]{1,4}\)?(?:[ -][0-9]{3,8}){1,3}(?![\w]|[.,][0-9]|-[0-9])"
    r"|(?<![\w.-])[0-9]{3}-[0-9]{4}(?![\w-])"
    r"|(?<![\w.,-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![\w-])"
)
_TELEPHONE = re.compile(_GROUPED)
_CARD = re.compile(
    r"(?a)(?<![\w.,])[0-9]{4}(?:[ -][0-9]{4}){3,4}(?![\w,])|(?<![\w.,])[0-9]{4} [0-9]{6} [0-9]{5}(?![\w,])"
)
_LETTERS = re.compile(r"(?a)(?<![\w.-])(1-)?([0-9]{3})-([A-Z]{1,8}(?:-[A-Z]{1,8})*|[A-Z0-9]{4,8})(?![\w-])")
_LISTED = re.compile(r"(?a)(?<![\w.,-])[1-9][0-9]?(?:-[1-9][0-9]?){2,}(?![\w-])")
_PARTS = re.compile(
    r"(?a)(?<![\w.,-])[0-9]+(?:-[0-9]+){2,}(?![\w-])|(?<![\w.,-])(?:[0-9]{5,}-[0-9]{3,}|[0-9]+-0[0-9]+|0[0-9]+-[0-9]+)(?![\w-])"
)


def read(place: Place) -> ReadForm | None:
    """The digits one by one, a pause between groups."""
    language = place.language
    for pattern in (_TELEPHONE, _CARD):
        if found := place.match(pattern):
            return ReadForm(found.end(), groups(found[0], place))
    if found := place.match(_LETTERS):
        hundreds = found[2].endswith("00")
        area = language.cardinal(found[2]) if hundreds else language.digits(found[2])
        words = [area, found[3].replace("-", " ")]
        return ReadForm(
            found.end(), f"{language.pause} ".join([language.digits("1"), *words] if found[1] else words)
        )
    if found := place.match(_LISTED):
        return ReadForm(
            found.end(), language.grouped([language.cardinal(part) for part in found[0].split("-")])
        )
    found = place.match(_PARTS)
    return ReadForm(found.end(), groups(found[0], place)) if found else None


def groups(written: str, place: Place) -> str:
    """Groups of digits one by one, with a pause between."""
    language = place.language
    words = [language.telephone_digits(group) for group in re.findall("[0-9]+", written)]
    if written.startswith("+"):
        words[0] = f"{language.country_code}{language.space}{words[0]}"
    return language.grouped(words)
