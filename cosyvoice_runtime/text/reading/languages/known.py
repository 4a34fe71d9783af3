"""The languages whose words are known, each loaded when it is first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from cosyvoice_runtime.text.reading.languages.language import Language

_MODULES = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "ko": "korean",
    "pt": "portuguese",
    "ru": "russian",
    "zh": "chinese",
}
KNOWN = tuple(_MODULES)
"""Their tags."""
EUROPEAN = ("de", "es", "fr", "it", "pt", "ru")
"""European languages with a comma before fractions, which English lacks."""


@cache
def language_of(tag: str) -> Language | None:
    """The language of a resolved tag such as ``en``; None where its words are not known.

    The first call for a language takes some 20 to 60 ms, for its tables and patterns.
    """
    name = _MODULES.get(tag)
    if name is None:
        return None
    language: Language = getattr(import_module(f"{__package__}.{name}"), name.upper())
    return language
