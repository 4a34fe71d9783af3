"""Expressions in words, by the grammars of the package wetext."""

from __future__ import annotations

import logging
import re
import threading
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from cosyvoice_runtime.errors import CosyVoiceError, shorten

logger = logging.getLogger(__name__)

CACHED_EXPRESSIONS = 2048
"""Expressions kept of each language; at 120 characters each at most 2 MB."""

Language = Literal["ja"]

_TOKEN = re.compile(r'(\w+) *\{((?: *\w+: *"(?:[^"\\]|\\.)*")+) *\}')
_MEMBER = re.compile(r'(\w+): *("(?:[^"\\]|\\.)*")')
_ORDER: dict[str, tuple[str, ...]] = {
    "date": ("year", "month", "day"),
    "fraction": ("denominator", "numerator"),
    "measure": ("denominator", "numerator", "value"),
    "money": ("value", "currency"),
    "time": ("noon", "hour", "minute", "second"),
}
"""The order in which the second grammar expects the members of a token (wetext 0.1.8, ``constants.py``)."""


class Grammar:
    """Reads one expression (a date, a time, a clause with numbers) in one language; safe for threads.

    Its files are read when it is first needed: with the library Japanese takes 5 MiB. The
    package's own ``Normalizer`` reads those of all languages, and those for the way back, when it is
    imported. Latest readings are kept, see :data:`CACHED_EXPRESSIONS`.

    Expressions hold letters, digits and number punctuation only: the grammars escape quotes and backslashes
    in their output and reject many symbols, so whole texts are never handed to them.

    Raises:
        CosyVoiceError: the package ``wetext`` is not installed.
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._directory = _package() / "fsts" / language / "tn"
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._cached = lru_cache(CACHED_EXPRESSIONS)(self._read)

    def __call__(self, expression: str) -> str:
        """The expression in words, or unchanged (and a log line) where the grammar has no reading for it."""
        return self._cached(expression)

    def _read(self, expression: str) -> str:
        tagger, verbalizer = self._grammars()
        tagged = tagger(expression.strip())
        words: str = verbalizer(_ordered(tagged)) if tagged else ""
        if not words:
            logger.info("no reading for %s, left to the number rules", shorten(expression))
        return words.strip() or expression

    def _grammars(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                # Here and not at the top: most languages are never spoken in a process.
                from kaldifst import TextNormalizer

                logger.info("reading the grammar of %s", self._language)
                names = ("tagger.fst", "verbalizer.fst")
                tagger, verbalizer = (TextNormalizer(str(self._directory / name)) for name in names)
                self._loaded = tagger, verbalizer
            return self._loaded


def _package() -> Path:
    """The directory of wetext, which is found and not imported, see :class:`Grammar`."""
    package = find_spec("wetext")
    if package is None or not package.submodule_search_locations or find_spec("kaldifst") is None:
        raise CosyVoiceError(
            "text normalisation needs the package wetext (pip install wetext==0.1.8); "
            'without it choose normaliser="rules" or normaliser="none"'
        )
    return Path(package.submodule_search_locations[0])


def _ordered(tagged: str) -> str:
    """The tokens of the first grammar, their members in the order that the second one expects."""
    return " ".join(_token(match[1], match[2]) for match in _TOKEN.finditer(tagged))


def _token(name: str, members: str) -> str:
    values = dict(_MEMBER.findall(members))
    if values.get("preserve_order") != '"true"':
        first = [key for key in _ORDER.get(name, ()) if key in values]
        values = {key: values[key] for key in dict.fromkeys([*first, *values])}
    return f"{name} {{ {' '.join(f'{key}: {value}' for key, value in values.items())} }}"
