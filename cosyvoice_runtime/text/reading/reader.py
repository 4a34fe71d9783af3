"""The way through a text: at each place the first class that finds its form there reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from cosyvoice_runtime.text.reading.classes import CLASSES
from cosyvoice_runtime.text.reading.languages.language import Language, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

_SKIPPED = re.compile(
    r"[^\W\d_①-⑳Ⅰ-Ⅻ\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+|[\u3040-\u30ff]+|[\u3400-\u9fff]+|[\uac00-\ud7a3]+|\s+|.",
    re.DOTALL,
)
"""A word, spaces or one character, which are passed on where no class finds anything."""
_NO_FUNCTION = "(?!(?:sin|cos|tan|log|ln|lim|det) )"
_JOINS = re.compile(r"[^\W_]")


class FormReader:
    """Reads the written forms of texts in one language; safe for threads.

    Args:
        language: whose words are spoken.
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._classes = _classes_of(language)
        self._passed = _plain_words(language)

    def __call__(self, text: str) -> str:
        """The text with each written form in words."""
        parts: list[str] = []
        folded = self._language.folded(text)
        at = 0
        while at < len(text):
            passed = self._passed.match(text, at)
            place = Place(folded, at, self._language)
            found = None if passed else first(self._classes, place)
            if found is None:
                passed = passed or _SKIPPED.match(text, at)
                assert passed is not None
                parts.append(passed[0])
                at = passed.end()
                continue
            if parts and found.words and _JOINS.match(parts[-1][-1:]) and _JOINS.match(found.words):
                parts.append(self._language.space_after_word(parts[-1], found.words))
            found = self._language.agreed(found, replace(place, text=text))
            parts.append(found.words)
            at = found.end
            if _JOINS.match(text[at : at + 1]) and _JOINS.match(found.words[-1:]):
                parts.append(self._language.space_before_word)
        return "".join(parts)


def _plain_words(language: Language) -> re.Pattern[str]:
    """Words in small letters with nothing but spaces and commas between them; the last may begin a form.

    Where a space begins no form, also one before a word or number.
    """
    short = [word for word in language.abbreviations if word.isalpha() and word.islower()]
    none = rf"(?!{alternatives(short)}\b)" if short else ""
    space = "" if language.spaces_begin_forms else r"| (?=[^\W_])"
    return re.compile(rf"(?<!= )(?:{_NO_FUNCTION}{none}[a-z]{{2,}}(?:['’][a-z]+)?,? +)+(?=[a-z]){space}")


def _classes_of(language: Language) -> Sequence[Callable[[Place], ReadForm | None]]:
    """The classes of a language; Chinese has its own, since its words stand without spaces."""
    if language.tag != "zh":
        return CLASSES
    from cosyvoice_runtime.text.reading import chinese

    return chinese.CLASSES
