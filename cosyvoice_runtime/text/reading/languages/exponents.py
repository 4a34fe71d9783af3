"""Exponents of powers: ``²``, ``^-3``, ``^{n-1}``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages.language import Language

_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")


def power_of(written: str, language: Language) -> str:
    """The words after a base; its exponent is a number, letters, or two of them with a sign between."""
    exponent = written.translate(_PLAIN).strip("^{}()")
    if found := re.fullmatch("(-?)([1-9])/([2-9])", exponent):
        minus = [language.minus] if found[1] else []
        part = language.fraction(int(found[2]), int(found[3]))
        return language.power(language.space.join((*minus, part)))
    if 1 < len(exponent) < 4 and exponent.isalpha():
        return language.power(language.space.join(language.letters.get(each, each) for each in exponent))
    if not re.search("(?<=.)[-+−·/]|[0-9][A-Za-z]", exponent):
        return language.power(exponent)
    pieces = re.findall("[0-9]+|[A-Za-zα-ω]|[-+−·/]", exponent)
    words = (
        language.cardinal(each) if each.isdecimal()
        else language.letters.get(each, each) if each.isalpha()
        else language.operations["×" if each == "·" else each]
        for each in pieces
    )  # fmt: skip
    return language.power(language.space.join(words))
