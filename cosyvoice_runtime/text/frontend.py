"""The way from a user's text to the segments that the speech LM speaks one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import lru_cache
from itertools import chain, groupby
from typing import Protocol, TypeGuard, cast

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import DEFAULT, Family
from cosyvoice_runtime.families.tokens import END_OF_PROMPT
from cosyvoice_runtime.language_names import AUTO
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text.blocks import TextBlock, blocks, placed
from cosyvoice_runtime.text.clauses import ClauseStream
from cosyvoice_runtime.text.language import LanguageTags, counts_characters, resolve
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.markup import MarkupOptions, TextMarkup, TextReader
from cosyvoice_runtime.text.markup.said import USUAL, Boundary, Manner, Pause, Said
from cosyvoice_runtime.text.normalise import Mode, Normaliser
from cosyvoice_runtime.text.places import places
from cosyvoice_runtime.text.polyphones import as_it_is, pronounced
from cosyvoice_runtime.text.segment import ReadSegments, Segment
from cosyvoice_runtime.text.split import (
    CHINESE,
    WESTERN,
    WITH_ORDINALS,
    Count,
    Placed,
    SplitLimits,
    SplitStyle,
    complete,
    cut_sentences,
    grouped,
)
from cosyvoice_runtime.text.validate import (
    MAX_PROMPT_CHARACTERS,
    MAX_TARGET_CHARACTERS,
    holds_control_token,
    require_text,
    special_pattern,
)

CACHED_TEXTS = 1024
"""Texts kept of up to :data:`LONGEST_CACHED` characters, at most 60 MB."""
LONGEST_CACHED = 10_000
CACHED_LONG_TEXTS = 8
"""Longer texts kept, at most 12 MB, for requests that go on in the midst of one."""


LONGEST_CLAUSE = 160
"""Longest clause where the limits have no length from which on a sentence is cut."""


class TokenCounter(Protocol):
    """The part of a tokenizer that splitting needs."""

    def count(self, text: str) -> int: ...


class TextFrontEnd:
    """Normalises and splits texts; repeated texts come from a bounded cache. Safe for threads.

    Args:
        tokenizer: counts the tokens of a text.
        normaliser: ``full`` (default), ``rules`` or ``none``; see :class:`Normaliser`.
        limits: lengths of the segments.
        cached_texts: size of the cache; 0 for none.
        family: of the checkpoint, which has its own special tokens and may need ``<|endofprompt|>``.
        lexicon: words that are spoken as something else is.
        polyphones: tell the speech LM in units of pronunciation how Chinese characters are read that have
            several readings; for a family that reads such units.
        adds_instruction: words without the instruction that the family needs get its usual one; otherwise
            they are refused.
        markup: how Markdown, tags and formulae of a target text are read; with the normaliser ``none`` they
            stay as they are.

    Raises:
        InvalidInput: ``polyphones`` with a family that reads no units.
    """

    def __init__(
        self,
        tokenizer: TokenCounter,
        normaliser: Mode = "full",
        limits: SplitLimits | None = None,
        cached_texts: int = CACHED_TEXTS,
        family: Family = DEFAULT,
        lexicon: Lexicon | None = None,
        polyphones: bool = False,
        adds_instruction: bool = False,
        markup: MarkupOptions | None = None,
    ) -> None:
        if polyphones and not family.reads_units:
            limit = (
                f"the speech LM of {family.name} reads no units of pronunciation; respell words in a lexicon"
            )
            raise InvalidInput("polyphones", polyphones, limit)
        self._tokenizer = tokenizer
        self._limits = limits or SplitLimits()
        self.family = family
        self._adds_instruction = adds_instruction
        self._normaliser = Normaliser(normaliser, special_pattern(family.special_tokens), lexicon)
        self._markup = MarkupOptions("plain") if normaliser == "none" else markup or MarkupOptions()
        self._pronounced = pronounced if polyphones else as_it_is
        self._tags = LanguageTags(family.language_tags)
        self._cached_reading: Callable[[str, str], ReadSegments] = lru_cache(cached_texts)(self._reading)
        self._cached_long_reading: Callable[[str, str], ReadSegments]
        self._cached_long_reading = lru_cache(min(cached_texts, CACHED_LONG_TEXTS))(self._reading)
        self._cached_normalised: Callable[[str, str], str] = lru_cache(cached_texts)(self._normalised)

    @property
    def markup(self) -> TextMarkup:
        """In which texts are written that don't say."""
        return self._markup.markup

    def asked(self, text_markup: TextMarkup | None, lexicon: Lexicon | None) -> TextFrontEnd:
        """The front end for a request with markup or a lexicon of its own, which counts before this one's."""
        if text_markup in (None, self._markup.markup) and lexicon is None:
            return self
        asked = copy(self)
        if text_markup is not None:
            asked._markup = replace(self._markup, markup=text_markup)
        if lexicon is not None:
            asked._normaliser = self._normaliser.with_words(lexicon)
        asked._cached_reading = asked._cached_long_reading = asked._reading
        asked._cached_normalised = asked._normalised
        return asked

    def segments(self, text: str, language: str = AUTO) -> list[str]:
        """The words of :meth:`spoken`."""
        return [segment.text for segment in self.spoken(text, language) if segment.text]

    def spoken(self, text: str, language: str = AUTO) -> list[Segment]:
        """All segments of :meth:`read`."""
        return list(self.read(text, language))

    def read(self, text: str, language: str = AUTO) -> ReadSegments:
        """Segments to synthesise one after another, in order; their leading spaces belong to them.

        The first one is read at once, each further one when it is asked for.

        Args:
            text: what is to be spoken.
            language: ``auto`` or a language tag (``zh``, ``en``, ``ja``, ...).

        Raises:
            InvalidInput: ``target_text`` holds nothing to speak (empty, whitespace, only punctuation), is too
                long or malformed; or ``language`` is not a language tag.
        """
        require_text("target_text", text, MAX_TARGET_CHARACTERS)
        is_long = len(text) > LONGEST_CACHED
        reading = (self._cached_long_reading if is_long else self._cached_reading)(text, language)
        first = next(iter(reading), None)
        if first is None or not first.text:
            raise InvalidInput("target_text", text, "it must hold more than punctuation and symbols")
        return reading

    def transcript(self, text: str, language: str = AUTO) -> str:
        """The words of a reference, normalised as its target is and not split.

        Raises:
            InvalidInput: ``reference_text`` is empty, too long or malformed.
        """
        require_text("reference_text", text, MAX_PROMPT_CHARACTERS)
        return self._cached_normalised(self._normaliser.visible(text), language)

    def missing_instruction(self, field: str, *texts: str) -> str:
        """Instruction that these texts lack before them: empty where none is needed or one of them has it.

        Raises:
            InvalidInput: naming ``field``, in which the first text was: it lacks one, and none is added. The
                error tells only how long the text is, as it may be another's voice's words.
        """
        shown = map(self._normaliser.visible, texts)
        if not self.family.needs_end_of_prompt or any(END_OF_PROMPT in text for text in shown):
            return ""
        if not self._adds_instruction:
            raise InvalidInput(
                field,
                f"{len(texts[0])} characters",
                f"{self.family.name} needs an instruction before the words that ends with {END_OF_PROMPT}, "
                f"such as {self.family.usual_instruction}",
            )
        return self.family.usual_instruction

    def clauses(self, language: str = AUTO) -> ClauseStream:
        """A :class:`ClauseStream` for text whose speech begins before it ends; an InvalidInput for no
        language tag."""
        longest = self._limits.hard or LONGEST_CLAUSE
        return ClauseStream(
            self._normaliser, self._rules, longest, language, self._pronounced, self._tags, self._markup
        )

    def _reading(self, text: str, language: str) -> ReadSegments:
        shown = self._normaliser.visible(text)
        instruction, words = self._parted(shown)
        tagged = self._tags.part(words)
        language = tagged.language(language)
        resolve("", language)
        reader = TextReader(self._normaliser.special, self._markup, language, self._normaliser)
        first, rest = reader.begun(tagged.words)
        language = self._normaliser.language("".join(filter(_is_words, first)), reader.language)
        original, lead = places(text, shown, self._normaliser.visible), len(shown) - len(tagged.words)
        segments = _joined(self._segments_of_said(chain(first, rest), language), instruction + tagged.tag)
        manners = [part for part in first if isinstance(part, Manner)]
        place = lambda said: original(lead + reader.characters(said))  # noqa: E731
        return ReadSegments(_placed_in_text(segments, place), manners)

    def _segments_of_said(self, said: Iterable[Said], language: str) -> Iterator[Segment | Pause | Boundary]:
        """The segments, whose characters are those of what is said, and what stands between them."""
        manner, (style, _) = USUAL, self._rules(language)
        parts = blocks(said, style, self._normaliser.special)
        for _, run in groupby(parts, key=lambda part: isinstance(part, TextBlock)):
            first = next(run)
            if isinstance(first, TextBlock):
                for text, end in self._words(chain([first], cast(Iterator[TextBlock], run)), language):
                    yield Segment(text, manner=manner, characters=end)
                continue
            for part in chain([first], cast(Iterator[Manner | Pause | Boundary], run)):
                if isinstance(part, Manner):
                    manner = part
                else:
                    yield part

    def _words(self, words: Iterator[TextBlock], language: str) -> Iterator[Placed]:
        """The segments of words that are spoken in one manner."""
        style, count = self._rules(language)
        special = self._normaliser.special
        first = next(words)
        if holds_control_token(first.words, special):
            prepared = Placed(first.words, first.said + len(first.words))
            segments = cut_sentences([prepared], self._limits.hard, count, special, first.said)
        else:
            sentences = self._sentences(chain([first], words), language, style)
            segments = grouped(sentences, self._limits, count, special, first.said)
        for segment in segments:
            if is_speakable(segment.text):
                yield segment._replace(text=self._pronounced(segment.text, language))

    def _sentences(self, words: Iterable[TextBlock], language: str, style: SplitStyle) -> Iterator[Placed]:
        """The normalised sentences of words."""
        spaces, begun = "", False
        for block in words:
            written = block.words.rstrip() if block.is_last else block.words
            before = len(written)
            written = written if begun else written.lstrip()
            begun = bool(written)
            normalised = self._normaliser.part(written, language, following=block.following)
            normalised = normalised if normalised[:1].isspace() else spaces + normalised
            if block.is_last:
                normalised, spaces = complete(self._normaliser.ending(normalised, language), style), ""
            else:  # Spaces behind the last mark begin the next sentence.
                spaces = normalised[len(normalised.rstrip()) :] if written.strip() else spaces
                normalised = normalised.rstrip()
            start = block.said + before - len(written)
            for sentence in placed(normalised, written.rstrip(), style):
                yield sentence._replace(end=start + sentence.end)

    def _normalised(self, text: str, language: str) -> str:
        instruction, words = self._parted(text)
        tagged = self._tags.part(words)
        return instruction + tagged.tag + self._normaliser(tagged.words, tagged.language(language))

    def _parted(self, text: str) -> tuple[str, str]:
        """The instruction that a checkpoint needs, up to ``<|endofprompt|>``, and the words after it."""
        if not self.family.needs_end_of_prompt:
            return "", text
        instruction, marker, words = text.rpartition(END_OF_PROMPT)
        return instruction + marker, words

    def _rules(self, language: str) -> tuple[SplitStyle, Count]:
        """Rules by which a language is split: its marks and the unit of its lengths."""
        if counts_characters(language):
            return CHINESE, len
        return WESTERN if language == "en" else WITH_ORDINALS, self._tokenizer.count


def _placed_in_text(segments: Iterable[Segment], place: Callable[[int], int]) -> Iterator[Segment]:
    """The segments, each with the characters of the text up to its end, which are more than those before it.

    Args:
        place: finds the characters of the text up to those of what is said.
    """
    end = 0
    for segment in segments:
        if segment.text:
            end = max(end + 1, place(segment.characters))
        yield replace(segment, characters=end if segment.text else 0)


def _is_words(said: Said) -> TypeGuard[str]:
    return isinstance(said, str)


def _joined(parts: Iterable[Segment | Pause | Boundary], prefix: str) -> Iterator[Segment]:
    """The segments, each with the prefix before its words, and with the pauses and the paragraph that begin
    before it."""
    pause_s, begun, begins = 0.0, False, False
    for part in parts:
        if isinstance(part, Pause):
            pause_s += part.seconds
        elif isinstance(part, Boundary):
            begins = begun
        else:
            yield replace(part, text=prefix + part.text, pause_s=pause_s, begins_paragraph=begins)
            pause_s, begun, begins = 0.0, True, False
    if pause_s:
        yield Segment("", pause_s)
