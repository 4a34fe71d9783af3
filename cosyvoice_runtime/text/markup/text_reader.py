"""The reader of a text by the markup that it is written in, which may be told by its beginning."""

from __future__ import annotations

import re

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.markup.options import MarkupOptions
from cosyvoice_runtime.text.markup.reader import MAY_BE_MARKED, MarkupReader
from cosyvoice_runtime.text.markup.said import Languages, Pause, Said, joined
from cosyvoice_runtime.text.markup.ssml import FIELD, SsmlReader

LONGEST_PAUSES_S = 60.0
"""All silences of a text together."""
_SSML = re.compile(r"\s*(?:<\?xml[^<>]{0,200}\?>\s*)?<speak(?=[\s>])")
_DECLARATION = re.compile(r"<\?xml[^<>]{0,200}\?>\s*")
_DECLARATION_BEGUN = re.compile(r"<\?xml[^<>]{0,200}\Z")


class TextReader:
    """Turns a text into what is said, as it comes: the same whatever the pieces.

    With ``auto``, a text that begins with ``<speak>`` is SSML, any other may be Markdown.

    Args:
        special: finds tokens that are never changed.
        language: asked for.
        languages: knows those of its words.

    Attributes:
        language: asked for, or what the text says of itself where none is.

    Raises:
        InvalidInput: by every method: the markup can't be read, or asks for too much silence.
    """

    def __init__(
        self, special: re.Pattern[str], options: MarkupOptions, language: str, languages: Languages
    ) -> None:
        languages.tell("", language)
        self._special, self._options = special, options
        self._asked, self._languages = language, languages
        self._undecided = ""
        self._pauses_s = 0.0
        self._reader: MarkupReader | SsmlReader | None = None
        if options.markup != "auto":
            self._choose(options.markup == "ssml")

    @property
    def language(self) -> str:
        told = self._reader.language if isinstance(self._reader, SsmlReader) else ""
        return told if told and self._asked == "auto" else self._asked

    def whole(self, text: str) -> list[Said]:
        """All that is said of a whole text."""
        if self._options.markup == "plain" or (
            self._options.markup != "ssml" and not MAY_BE_MARKED.search(text)
        ):
            return [text]
        said = joined([*self.push(text), *self.flush()])
        if isinstance(self._reader, SsmlReader):
            self._reader.close()
        return said

    def push(self, text: str) -> list[Said]:
        """Take more text; return what is known of what is said."""
        if self._reader is None:
            self._undecided += text
            if not self._decide(complete=False):
                return []
            text, self._undecided = self._undecided, ""
        assert self._reader is not None
        return self._checked(self._reader.push(text))

    def flush(self) -> list[Said]:
        """Return the rest of what is said, as if the text ended here; more may follow."""
        if self._reader is None and not self._undecided:
            return []
        self._decide(complete=True)
        assert self._reader is not None
        text, self._undecided = self._undecided, ""
        return self._checked([*self._reader.push(text), *self._reader.flush()])

    def characters(self, said: int) -> int:
        """Characters of what was written that are said with the first ``said`` characters."""
        return 0 if self._reader is None else self._reader.characters(said)

    def _decide(self, complete: bool) -> bool:
        """Whether it is known by now in what the text is written."""
        if self._reader is not None:
            return True
        is_ssml = _SSML.match(self._undecided)
        if not complete and not is_ssml and _may_become_ssml(self._undecided):
            return False
        self._choose(bool(is_ssml))
        return True

    def _choose(self, ssml: bool) -> None:
        if ssml:
            self._reader = SsmlReader(self._special, self._asked, self._languages)
        else:
            self._reader = MarkupReader(self._special, self._options, self._tell)

    def _tell(self, words: str) -> str:
        return self._languages.tell(words, self._asked)

    def _checked(self, said: list[Said]) -> list[Said]:
        self._pauses_s += sum(part.seconds for part in said if isinstance(part, Pause))
        if self._pauses_s > LONGEST_PAUSES_S:
            limit = f"pauses of at most {LONGEST_PAUSES_S:g} s in a text"
            raise InvalidInput(FIELD, f"{self._pauses_s:g} s", limit)
        return said


def _may_become_ssml(text: str) -> bool:
    """Whether a text may be the beginning of a document."""
    rest = text.lstrip()
    if _DECLARATION_BEGUN.match(rest):
        return True
    declared = _DECLARATION.match(rest)
    return "<speak".startswith(rest[declared.end() :] if declared else rest) or "<?xml".startswith(rest)
