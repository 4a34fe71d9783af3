"""Speech Synthesis Markup Language (W3C, SSML 1.1): what of it is spoken, and how."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from xml.parsers import expat

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.language_names import AUTO
from cosyvoice_runtime.text.markup import pauses
from cosyvoice_runtime.text.markup.line_ends import Break
from cosyvoice_runtime.text.markup.output import Output
from cosyvoice_runtime.text.markup.phonemes import units
from cosyvoice_runtime.text.markup.said import USUAL, Languages, Manner, Said
from cosyvoice_runtime.text.reading.languages.known import KNOWN, language_of
from cosyvoice_runtime.text.reading.languages.language import Language

logger = logging.getLogger(__name__)

FIELD = "target_text"
DEEPEST = 8
"""Elements inside each other."""
MOST_VOICES = 100
"""Voices that one text may change to."""
LARGEST = 65_536
"""Bytes of a document, or of a text without one."""
RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5}
"""Times the usual pace, for which the standard (SSML 1.1, section 3.2.4) sets no numbers."""

Attributes = Mapping[str, str]

_INSIDE = r"(?:[^<>\"']|\"[^\"<]*+\"|'[^'<]*+')*+"
"""Finds a tag's name and attributes, whose values hold no ``<``."""
_TOKEN = re.compile(
    r"(?P<ignored><!--.*?-->|<\?.*?\?>)|(?P<cdata><!\[CDATA\[.*?\]\]>)|(?P<doctype><!(?=[^-\[]))"
    rf"|(?P<tag><(?![!?\s\d=]){_INSIDE}>)|(?P<entity>&[#\w]{{1,10}};)"
    rf"|(?P<broken>&(?![#\w]{{0,10}}(?:;|\Z))|<[\s\d=]|<(?![!?]){_INSIDE}(?:\"[^\"<]*+|'[^'<]*+)?<)"
    r"|(?P<spaces>[ \t\r\n]+)|(?P<words>[^<&\s]+|[^\S \t\r\n]+)",
    re.DOTALL,
)
_PERCENT = re.compile(r"([+-]?)([0-9]{1,3}(?:\.[0-9]{1,3})?)%")
_NUMBER = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,6})?")
_SILENT = ("audio", "desc", "lexicon", "lookup", "mark", "meta", "metadata")
"""Elements of the standard that change nothing here; the words of ``audio`` are spoken."""
_UNSAID = ("desc", "metadata")
_TRANSPARENT = ("emphasis", "token", "w")
_BREAKS = {
    "speak": Break.PARAGRAPH,
    "p": Break.BLANK,
    "paragraph": Break.BLANK,
    "s": Break.PARAGRAPH,
    "sentence": Break.PARAGRAPH,
}
"""The break at both ends of an element."""
_WARNED: set[str] = set()


class Element(NamedTuple):
    """An open element.

    Attributes:
        manner: of its words.
        language: they are read in; empty for the text's own.
        kind, form: how ``say-as`` has them read; empty elsewhere.
        replaced: what is spoken in their place.
    """

    name: str
    manner: Manner = USUAL
    language: str = ""
    kind: str = ""
    form: str = ""
    replaced: str | None = None


class SsmlReader:
    """Turns SSML into what is said, as it comes: the same whatever the pieces.

    ``<speak>`` may be missing, and more than one document may come. Entities of the document's own are
    refused, so nothing in it can grow.

    Args:
        special: finds tokens that are never changed, units of pronunciation among them where they are read.
        language: asked for.
        languages: knows those of its words.

    Attributes:
        language: of ``<speak xml:lang>``, empty where it names none.

    Raises:
        InvalidInput: by every method, naming what is not well-formed, unknown or too large.
    """

    def __init__(self, special: re.Pattern[str], language: str, languages: Languages) -> None:
        self._reads_units = bool(special.fullmatch(UNITS[0]))
        self._asked, self._languages = language, languages
        self.language = ""
        self._text = ""
        self._written = 0  # Characters before self._text.
        self._bytes = 0
        self._out = Output()
        self._open = [Element("")]
        self._voices: set[str] = set()
        self._collected = ""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._say
        self._parser.Parse("<text>", False)  # Around everything, so that words may stand outside speak.

    def push(self, text: str) -> list[Said]:
        """Take more text; return what is known of what is said."""
        self._bytes += len(text.encode())
        if self._bytes > LARGEST:
            raise InvalidInput(FIELD, f"{self._bytes} bytes", f"SSML of at most {LARGEST}")
        self._text += text
        at = 0
        while found := _TOKEN.match(self._text, at):
            at = found.end()
            self._written += at - found.start()
            self._take(found)
        self._text = self._text[at:]
        return self._out.taken()

    def flush(self) -> list[Said]:
        """Return the rest of what is said, as if the words ended here; more may follow."""
        self._out.end(self._written)
        return self._out.taken()

    def close(self) -> None:
        """Require that every element is closed."""
        if self._text:
            raise _malformed(self._text, "nothing ends it")
        if len(self._open) > 1:
            raise _malformed(f"<{self._open[-1].name}>", "it is not closed")

    def characters(self, said: int) -> int:
        """Characters of what was written that are said with the first ``said`` characters."""
        return self._out.characters(said)

    def _take(self, found: re.Match[str]) -> None:
        kind = found.lastgroup
        rest = found.string[found.start() :]
        if kind == "doctype":
            raise _malformed(rest, "a document type is not accepted")
        if kind == "broken":
            raise _malformed(rest, "no tag and no entity: < is written &lt; and & is &amp;")
        if kind == "spaces":
            self._spaces(found[0])
        elif kind == "words":
            self._words(found[0])
        elif kind != "ignored":
            self._parse(found[0])

    def _parse(self, markup: str) -> None:
        try:
            self._parser.Parse(markup, False)
        except expat.ExpatError as error:
            raise _malformed(markup, expat.ErrorString(error.code)) from None

    def _spaces(self, spaces: str) -> None:
        if self._is_collecting:
            self._collected += spaces
        elif self._open[-1].replaced is None:
            self._out.hold(spaces.replace("\r", " ").replace("\n", " "))

    def _words(self, words: str) -> None:
        self._say(words, same=True)

    def _say(self, words: str, same: bool = False) -> None:
        if self._is_collecting:
            self._collected += words
        elif self._open[-1].replaced is None:
            self._out.say(words, self._written, same)

    @property
    def _is_collecting(self) -> bool:
        """Whether words wait for the end of their element, which is read as one."""
        inner = self._open[-1]
        return inner.replaced is None and bool(inner.kind or inner.language)

    def _begin(self, name: str, attributes: Attributes) -> None:
        if name == "text" and len(self._open) == 1:
            return
        self._read_collected()
        outer = self._open[-1]
        if len(self._open) > DEEPEST:
            raise InvalidInput(FIELD, f"<{name}>", f"at most {DEEPEST} elements inside each other")
        if outer.replaced == "":
            self._open.append(outer._replace(name=name))
            return
        if outer.kind or outer.replaced is not None:
            raise InvalidInput(FIELD, f"<{name}>", f"words alone inside <{outer.name}>")
        inner = self._element(outer, name, attributes)
        self._open.append(inner)
        if inner.manner != outer.manner:
            self._out.mark(inner.manner)

    def _end(self, name: str) -> None:
        self._read_collected()
        inner = self._open.pop()
        if inner.replaced:
            self._out.say(self._in_language(inner.replaced, inner.language), self._written)
        if name in _BREAKS:
            self._out.hold("", _BREAKS[name])
        if len(self._open) == 1:
            self._bytes = 0
        if inner.manner != self._open[-1].manner:
            self._out.mark(self._open[-1].manner)

    def _read_collected(self) -> None:
        """Say the words of an element that is read as one."""
        words, self._collected = self._collected, ""
        if not words.strip():
            self._out.hold(words)
            return
        inner = self._open[-1]
        stripped = " ".join(words.split())
        if inner.kind:
            from cosyvoice_runtime.text.reading.say_as import said_as  # with Chinese patterns

            said = said_as(stripped, inner.kind, inner.form, self._language(inner, words))
        else:
            said = self._in_language(stripped, inner.language)
        self._out.hold(words[: len(words) - len(words.lstrip())])
        self._out.say(said, self._written)
        self._out.hold(words[len(words.rstrip()) :])

    def _language(self, inner: Element, words: str) -> Language:
        """The language of an element's words, by what was said where it is not asked for."""
        tag = self._languages.tell(self._out.heard + words, inner.language or self._asked) or "en"
        language = language_of(tag)
        if language is None:
            raise InvalidInput(FIELD, f"<{inner.name}> in {tag}", f"words in {', '.join(KNOWN)}")
        return language

    def _in_language(self, words: str, language: str) -> str:
        return self._languages.in_language(words, language) if language else words

    def _element(self, outer: Element, name: str, attributes: Attributes) -> Element:
        inner = Element(name, outer.manner, attributes.get("xml:lang", outer.language))
        self._languages.tell("", inner.language or self._asked)
        if name == "speak":
            inner = inner._replace(language=self._of_document(attributes) or outer.language)
        if name in _BREAKS:
            self._out.hold("", _BREAKS[name])
            return inner
        if make := _ELEMENTS.get(name):
            return make(self, inner, attributes)
        if ":" not in name and name not in (*_SILENT, *_TRANSPARENT):
            raise InvalidInput(FIELD, f"<{name}>", f"one of {', '.join(sorted((*_BREAKS, *_ELEMENTS)))}")
        _warn(f"<{name}>")
        return inner._replace(replaced="") if name in _UNSAID else inner

    def _of_document(self, attributes: Attributes) -> str:
        """The language of a document's words, empty where it is that of all the text: a later document's may
        be another."""
        language = attributes.get("xml:lang", "")
        if not self._out.heard:
            self.language = language or self.language
        return language if self._asked == AUTO and language != self.language else ""

    def _break(self, inner: Element, attributes: Attributes) -> Element:
        self._out.mark(pauses.of_break(attributes))
        return inner

    def _sub(self, inner: Element, attributes: Attributes) -> Element:
        return inner._replace(replaced=_required(attributes, "sub", "alias"))

    def _phoneme(self, inner: Element, attributes: Attributes) -> Element:
        alphabet = attributes.get("alphabet", "ipa")
        said = units(alphabet, _required(attributes, "phoneme", "ph"), self._reads_units)
        return inner._replace(replaced=said, language="")

    def _say_as(self, inner: Element, attributes: Attributes) -> Element:
        kind = _required(attributes, "say-as", "interpret-as")
        return inner._replace(kind=kind, form=attributes.get("format", ""))

    def _prosody(self, inner: Element, attributes: Attributes) -> Element:
        for ignored in sorted({*attributes} - {"rate", "xml:lang"}):
            _warn(f"{ignored} of <prosody>")
        rate, voice = inner.manner
        return inner._replace(manner=Manner(rate * rate_of(attributes.get("rate", "medium")), voice))

    def _voice(self, inner: Element, attributes: Attributes) -> Element:
        name = _required(attributes, "voice", "name")
        self._voices.add(name)
        if len(self._voices) > MOST_VOICES:
            raise InvalidInput(FIELD, f"{len(self._voices)} voices", f"at most {MOST_VOICES} in a text")
        return inner._replace(manner=inner.manner._replace(voice=name))

    def _lang(self, inner: Element, attributes: Attributes) -> Element:
        _required(attributes, "lang", "xml:lang")
        return inner


_ELEMENTS: dict[str, Callable[[SsmlReader, Element, Attributes], Element]] = {
    "break": SsmlReader._break,
    "lang": SsmlReader._lang,
    "phoneme": SsmlReader._phoneme,
    "prosody": SsmlReader._prosody,
    "say-as": SsmlReader._say_as,
    "sub": SsmlReader._sub,
    "voice": SsmlReader._voice,
}


def rate_of(written: str) -> float:
    """The pace of ``<prosody rate>``: a word, ``80%``, ``+20%`` or a number, times the usual one.

    Raises:
        InvalidInput: it is none of these.
    """
    written = written.strip()
    if written in RATES:
        return RATES[written]
    if found := _PERCENT.fullmatch(written):
        percent = float(found[2])
        return {"": percent, "+": 100 + percent, "-": 100 - percent}[found[1]] / 100
    if _NUMBER.fullmatch(written):
        return float(written)
    limit = f"a rate is one of {', '.join(RATES)}, a percentage such as 80% or +20%, or a number such as 1.2"
    raise InvalidInput(FIELD, written, limit)


def _required(attributes: Attributes, name: str, attribute: str) -> str:
    if value := attributes.get(attribute, "").strip():
        return value
    raise InvalidInput(FIELD, f"<{name}>", f"it needs {attribute}")


def _malformed(markup: str, why: str) -> InvalidInput:
    return InvalidInput(FIELD, markup[:60], f"well-formed SSML ({why})")


def _warn(what: str) -> None:
    """Say in the log, once, that something of SSML changes nothing."""
    if what not in _WARNED and len(_WARNED) < 100:
        _WARNED.add(what)
        logger.warning("%s of SSML changes nothing here", what)
