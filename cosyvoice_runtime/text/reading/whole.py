"""Classes of written forms, each asked for a form that takes all of some words."""

from __future__ import annotations

from collections.abc import Callable

from cosyvoice_runtime.text.reading.languages.language import Language
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

ReadClass = Callable[[Place], ReadForm | None]


def said_whole(words: str, language: Language, *classes: ReadClass) -> str | None:
    """The words of the first class that reads all of the words; None where none does."""
    for read in classes:
        found = read(Place(words, 0, language))
        if found is not None and found.end == len(words):
            return found.words
    return None
