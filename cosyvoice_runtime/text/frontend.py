"""The way from a user's text to the segments that the speech LM speaks one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, TypeGuard

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import DEFAULT, Family
from cosyvoice_runtime.families.tokens import END_OF_PROMPT
from cosyvoice_runtime.language_names import AUTO
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text.clauses import ClauseStream
from cosyvoice_runtime.text.language import LanguageTags, counts_characters, resolve
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.markup import MarkupOptions, TextMarkup, TextReader
from cosyvoice_runtime.text.markup.said import USUAL, Manner, Pause, Said
from cosyvoice_runtime.text.normalise import Mode, Normaliser
from cosyvoice_runtime.text.polyphones import as_it_is, pronounced
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.split import (
    CHINESE,
    WESTERN,
    WITH_ORDINALS,
    Count,
    SplitLimits,
    SplitStyle,
    bounded,
    split,
)
from cosyvoice_runtime.text.validate import (
    MAX_PROMPT_CHARACTERS,
    MAX_TARGET_CHARACTERS,
    holds_control_token,
    require_text,
    special_pattern,
)

CACHED_TEXTS = 1024
"""Normalised texts kept; at 10,000 characters each at most 40 MB."""


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
        self._cached_segments: Callable[[str, str], tuple[Segment, ...]]
        self._cached_segments = lru_cache(cached_texts)(self._segments)
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
        asked._cached_segments, asked._cached_normalised = asked._segments, asked._normalised
        return asked

    def segments(self, text: str, language: str = AUTO) -> list[str]:
        """The words of :meth:`spoken`."""
        return [segment.text for segment in self.spoken(text, language) if segment.text]

    def spoken(self, text: str, language: str = AUTO) -> list[Segment]:
        """Segments to synthesise one after another, in order; their leading spaces belong to them.

        Args:
            text: what is to be spoken.
            language: ``auto`` or a language tag (``zh``, ``en``, ``ja``, ...).

        Raises:
            InvalidInput: ``target_text`` holds nothing to speak (empty, whitespace, only punctuation), is too
                long or malformed; or ``language`` is not a language tag.
        """
        require_text("target_text", text, MAX_TARGET_CHARACTERS)
        segments = self._cached_segments(self._normaliser.visible(text), language)
        if not any(segment.text for segment in segments):
            raise InvalidInput("target_text", text, "it must hold more than punctuation and symbols")
        return list(segments)

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

    def _segments(self, text: str, language: str) -> tuple[Segment, ...]:
        instruction, words = self._parted(text)
        tagged = self._tags.part(words)
        language = tagged.language(language)
        resolve("", language)
        reader = TextReader(self._normaliser.special, self._markup, language, self._normaliser)
        said = reader.whole(tagged.words)
        language = self._normaliser.language("".join(filter(_is_words, said)), reader.language)
        return tuple(_joined(self._segments_of_said(said, language), instruction + tagged.tag))

    def _segments_of_said(self, said: Sequence[Said], language: str) -> Iterator[Segment | Pause]:
        manner = USUAL
        for part in said:
            if isinstance(part, Manner):
                manner = part
            elif isinstance(part, Pause):
                yield part
            else:
                yield from (Segment(text, manner=manner) for text in self._words(part, language))

    def _words(self, text: str, language: str) -> list[str]:
        """The segments of words that are spoken in one manner."""
        normalised = self._normaliser(text, language)
        style, count = self._rules(language)
        special = self._normaliser.special
        if holds_control_token(text, special):
            hard = self._limits.hard
            segments = [normalised] if hard is None else list(bounded(normalised, hard, count, special))
        else:
            segments = split(normalised, style, self._limits, count, special)
        return [self._pronounced(segment, language) for segment in filter(is_speakable, segments)]

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


def _is_words(said: Said) -> TypeGuard[str]:
    return isinstance(said, str)


def _joined(parts: Iterable[Segment | Pause], prefix: str) -> Iterator[Segment]:
    """The segments, each with the prefix before its words and with the pauses before it."""
    pause_s = 0.0
    for part in parts:
        if isinstance(part, Pause):
            pause_s += part.seconds
        else:
            yield replace(part, text=prefix + part.text, pause_s=pause_s)
            pause_s = 0.0
    if pause_s:
        yield Segment("", pause_s)
