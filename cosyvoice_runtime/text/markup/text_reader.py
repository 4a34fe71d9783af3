"""The reader of a text by the markup that it is written in, which may be told by its beginning."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import END_OF_PROMPT
from cosyvoice_runtime.text.markup.options import MarkupOptions
from cosyvoice_runtime.text.markup.reader import LINE_END, MAY_BE_MARKED, MarkupReader
from cosyvoice_runtime.text.markup.said import Languages, Pause, Said, joined
from cosyvoice_runtime.text.markup.ssml import FIELD, SsmlReader

LONGEST_PAUSES_S = 60.0
"""All silences of a text together."""
PIECE = 5_000
"""Characters of a whole text that are read at once, some 2 ms of work on a CPU of 2 GHz. The language of a
text is that of as many."""
_LEAD = re.compile(
    rf"[\s\ufeff]*(.{{0,1000}}{re.escape(END_OF_PROMPT)}|<\|[a-z]{{2,3}}\|>)?[\s\ufeff]*", re.DOTALL
)
"""Finds what may stand before a document: an instruction, or the tag of a language."""
_DECLARATION = re.compile(r"(?:<\?xml[^<>]{0,200}\?>\s*)?")
_DOCUMENT = re.compile(r"<(?:speak(?=[\s>])|!DOCTYPE\s+speak)")
_BEGUN = re.compile(r"<(?:\?xml[^<>]{0,200}|\|[a-z]{0,3}\|?|!DOCTYPE\s+s?p?e?a?)\Z")


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
        self._lead = 0  # Characters before a document.
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
        first, rest = self.begun(text)
        return joined([*first, *rest])

    def begun(self, text: str) -> tuple[list[Said], Iterator[Said]]:
        """Return what is said of the first :data:`PIECE` characters of a whole text, and of the rest, which
        is read as it is asked for. SSML is read at once, as anything in it may be refused."""
        may_be_marked = LINE_END if self._options.markup == "plain" else MAY_BE_MARKED
        if self._options.markup != "ssml" and not may_be_marked.search(text):
            self._reader = None  # Its characters are those of the text.
            return [text], iter(())
        first = self.push(text[:PIECE])
        if len(text) <= PIECE or isinstance(self._reader, SsmlReader):
            return [*first, *self.push(text[PIECE:]), *self.end()], iter(())
        return first, self._rest(text)

    def _rest(self, text: str) -> Iterator[Said]:
        for start in range(PIECE, len(text), PIECE):
            yield from self.push(text[start : start + PIECE])
        yield from self.end()

    def push(self, text: str) -> list[Said]:
        """Take more text; return what is known of what is said."""
        if self._reader is not None:
            return list(self._checked(self._reader.push(text)))
        self._undecided += text
        return self._begin(complete=False)

    def flush(self) -> list[Said]:
        """Return the rest of what is said, as if the text ended here; more may follow. A tag that has begun
        waits for its end."""
        begun = self._begin(complete=False) if self._undecided else []
        return [*begun, *self._checked(self._reader.flush())] if self._reader is not None else []

    def end(self) -> list[Said]:
        """Return the rest of what is said: the text has ended."""
        begun = self._begin(complete=True) if self._undecided else []
        reader = self._reader
        if reader is None:
            return begun
        ended = reader.flush() if isinstance(reader, SsmlReader) else reader.end()
        said = [*begun, *self._checked(ended)]
        if isinstance(reader, SsmlReader):
            reader.close()
        return said

    def characters(self, said: int) -> int:
        """Characters of what was written that are said with the first ``said`` characters."""
        if self._reader is None or said <= self._lead:
            return said
        return self._lead + self._reader.characters(said - self._lead)

    def _begin(self, complete: bool) -> list[Said]:
        """Return what is said of the text so far, if it is known by now in what it is written."""
        text = self._undecided
        lead, document = self._parted(text)
        is_document = bool(_DOCUMENT.match(document))
        if not complete and not is_document and (_BEGUN.match(document) or _is_begun(document)):
            return []
        self._choose(is_document)
        assert self._reader is not None
        self._undecided = ""
        if not (is_document and lead):
            return list(self._checked(self._reader.push(text)))
        self._lead = len(lead)
        return [lead, *self._checked(self._reader.push(text[len(lead) :]))]

    def _parted(self, text: str) -> tuple[str, str]:
        """Return what stands before a document, and the document without its declaration, if it is one."""
        found = _LEAD.match(text)
        assert found is not None
        if found[1] and not self._special.search(found[1]):
            return "", text
        lead = found[0]
        declaration = _DECLARATION.match(text, len(lead))
        assert declaration is not None
        return lead, text[declaration.end() :]

    def _choose(self, ssml: bool) -> None:
        if ssml:
            self._reader = SsmlReader(self._special, self._asked, self._languages)
        else:
            self._reader = MarkupReader(self._special, self._options, self._tell)

    def _tell(self, words: str) -> str:
        return self._languages.tell(words, self._asked)

    def _checked(self, said: list[Said]) -> Iterator[Said]:
        """Return what is said, with no more silence than a text may ask for."""
        for part in said:
            if isinstance(part, Pause):
                part = self._limited(part)
            yield part

    def _limited(self, pause: Pause) -> Pause:
        """A silence within the limit, at which those of Markdown end: chat models know none."""
        left_s = LONGEST_PAUSES_S - self._pauses_s
        self._pauses_s += pause.seconds
        if pause.seconds > left_s and isinstance(self._reader, SsmlReader):
            limit = f"pauses of at most {LONGEST_PAUSES_S:g} s in a text"
            raise InvalidInput(FIELD, f"{self._pauses_s:g} s", limit)
        return Pause(min(pause.seconds, max(left_s, 0.0)))


def _is_begun(document: str) -> bool:
    """Whether a document's first tag may be there, cut off."""
    return any(beginning.startswith(document) for beginning in ("<speak", "<?xml", "<!DOCTYPE ", "<|"))
