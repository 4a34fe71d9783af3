"""The languages whose words are known."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.chinese import CHINESE
from cosyvoice_runtime.text.reading.languages.english import ENGLISH
from cosyvoice_runtime.text.reading.languages.french import FRENCH
from cosyvoice_runtime.text.reading.languages.german import GERMAN
from cosyvoice_runtime.text.reading.languages.italian import ITALIAN
from cosyvoice_runtime.text.reading.languages.japanese import JAPANESE
from cosyvoice_runtime.text.reading.languages.korean import KOREAN
from cosyvoice_runtime.text.reading.languages.language import Language
from cosyvoice_runtime.text.reading.languages.portuguese import PORTUGUESE
from cosyvoice_runtime.text.reading.languages.russian import RUSSIAN
from cosyvoice_runtime.text.reading.languages.spanish import SPANISH

EAST_ASIAN = (CHINESE, JAPANESE, KOREAN)
EUROPEAN = (FRENCH, GERMAN, ITALIAN, PORTUGUESE, RUSSIAN, SPANISH)
"""Those with a comma before fractions."""
_BY_TAG = {language.tag: language for language in (ENGLISH, *EAST_ASIAN, *EUROPEAN)}
KNOWN = tuple(sorted(_BY_TAG))
"""Their tags."""


def language_of(tag: str) -> Language | None:
    """The language of a resolved tag such as ``en``; None where its words are not known."""
    return _BY_TAG.get(tag)
