"""Clauses of a text that arrives over time, for speech that begins with the first of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cosyvoice_runtime.language_names import AUTO, language_tag
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text.controls import ControlDropper
from cosyvoice_runtime.text.language import LanguageTags, is_told, resolve
from cosyvoice_runtime.text.markup import MarkupOptions, TextReader
from cosyvoice_runtime.text.markup.said import USUAL, Boundary, Manner, Said
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.polyphones import Pronounced, as_it_is
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.split import Count, SplitStyle, bounded, complete, sentences

Rules = Callable[[str], tuple[SplitStyle, Count]]
"""Language to its marks and its unit of length."""

# A mark, the quote it closes, spaces, the first character of a word: what is before is settled.
_SENTENCE_END = re.compile(r"([。？！；：、.?!;:])(?:[\"”]|(?![\"”]))(\s*)(?=([^\W_]|[“\"'\[<(（]))")


_DIGIT = re.compile("[0-9]")
_LOOKED_AT = 2_000
"""Characters before a clause that tell its language; looking at all would take longer with each clause."""
_AWAITED = 48
"""Characters after a clause with digits that may tell its language."""
_SPACE = re.compile(r"\s")


def sentence_end(text: str, style_up_to: Callable[[int], SplitStyle | None]) -> int:
    """Length of the first sentence that is complete whatever follows; 0 if none is yet.

    Args:
        style_up_to: how the first characters are split, by their number; None where that is not known yet.
    """
    for match in _SENTENCE_END.finditer(text):
        if _is_clear(match):
            style = style_up_to(match.end())
            if style is None:
                return 0
            if _ends(match, style):
                return match.end()
    return 0


def sentence_ends(text: str, style: SplitStyle, least: int) -> Iterator[int]:
    """Lengths, of more than ``least`` characters, up to ends of sentences that no later text changes."""
    for match in _SENTENCE_END.finditer(text, least):
        if _is_clear(match) and _ends(match, style):
            yield match.end()


def _is_clear(match: re.Match[str]) -> bool:
    """Whether a mark may end a sentence by what follows it."""
    mark, spaces, following = match.groups()
    return bool(spaces) or not mark.isascii() or not following.isascii()


def _ends(match: re.Match[str], style: SplitStyle) -> bool:
    return style.ends_sentence(match.string, match.start()) and not style.announces(match[1], match[3])


@dataclass(frozen=True, kw_only=True)
class Clause(Segment):
    """A clause of arriving text.

    Attributes:
        characters: of all text pushed so far, those that are spoken when the clause is.
    """

    characters: int


class ClauseStream:
    """Takes text as it comes, gives each clause as soon as later text can't change it.

    A clause ends where the splitter ends a sentence: after a mark of the language that stands neither in a
    number nor after an abbreviation or ordinal, which the first character of the next word decides. One with
    digits waits for the next words where nothing has told the language yet. Where it ends does not depend on
    how the text was divided; text without marks leaves in parts of ``longest``.

    Args:
        longest: tokens or characters, as the rules count them.
        pronounced: what becomes of a clause in a language when it leaves.
        tags: of which one may begin the text; every clause then begins with it.
        markup: how that of the text is read.
    """

    def __init__(
        self,
        normaliser: Normaliser,
        rules: Rules,
        longest: int,
        language: str = AUTO,
        pronounced: Pronounced = as_it_is,
        tags: LanguageTags | None = None,
        markup: MarkupOptions | None = None,
    ) -> None:
        resolve("", language)
        self._controls = ControlDropper()
        markup = markup or MarkupOptions()
        self._reader = TextReader(normaliser.special, markup, language, normaliser)
        self._pause_s = 0.0
        self._manner = USUAL
        self._begins_paragraph = False
        self._tags = tags or LanguageTags()
        self._tag = ""
        self._normaliser = normaliser
        self._rules = rules
        self._longest = longest
        self._asked_language = language
        self._pronounced = pronounced
        self._taken = ""
        self._raw = ""
        self._spaces = ""
        self._spoken = 0
        self._begins = True
        self._ends = False
        self._any = False

    def push(self, text: str) -> list[Clause]:
        """Take more text; return the clauses that are complete now."""
        return self._read(self._reader.push(self._controls.push(text)))

    def flush(self) -> list[Clause]:
        """Return what is left, as if the text ended here; more may follow."""
        return self._left(self._reader.flush)

    def end(self) -> list[Clause]:
        """Return what is left: the text has ended. An InvalidInput tells of markup that nothing ends."""
        return self._left(self._reader.end)

    @property
    def characters(self) -> int:
        """Characters of all text pushed so far that are spoken when its clauses so far are."""
        return self._spoken

    def _left(self, finish: Callable[[], list[Said]]) -> list[Clause]:
        clauses = [
            *self._read(self._reader.push(self._controls.flush())),
            *self._read(finish()),
            *self._rest(),
        ]
        self._spoken = self._characters()
        if self._pause_s:
            clauses.append(Clause("", self._pause(), characters=self._spoken))
        return clauses

    def _read(self, said: Iterable[Said]) -> list[Clause]:
        clauses: list[Clause] = []
        self._asked_language = self._tag.strip("<|>") or self._reader.language
        for part in said:
            if isinstance(part, str):
                self._raw += part
                self._read_tag()
                clauses += self._complete()
            else:
                clauses += self._rest()
                if isinstance(part, Manner):
                    self._manner = part
                elif isinstance(part, Boundary):
                    self._begins_paragraph = self._any
                else:
                    self._pause_s += part.seconds
        return clauses

    def _rest(self) -> list[Clause]:
        """The clauses of what is left, as if the text ended here."""
        self._ends = True
        clauses = [*self._complete(), *self._take(len(self._raw), last=True)]
        self._spaces, self._begins, self._ends = "", True, False
        return clauses

    def _pause(self) -> float:
        """The silence before what comes next."""
        pause_s, self._pause_s = self._pause_s, 0.0
        return pause_s

    def _paragraph(self) -> bool:
        """Whether a paragraph begins with what comes next."""
        begins, self._begins_paragraph = self._begins_paragraph, False
        return begins

    def _complete(self) -> list[Clause]:
        """The clauses that are complete now."""
        clauses: list[Clause] = []
        while cut := self._cut():
            clauses += self._take(cut, last=False)
        return clauses

    def _read_tag(self) -> None:
        """Take the tag that the text begins with, unless something of the text has left."""
        tagged = self._tags.part(self._raw)
        if tagged.tag and not self._taken:
            self._taken = self._raw[: len(self._raw) - len(tagged.words)]
            self._tag, self._raw = tagged.tag, tagged.words
            self._asked_language = tagged.language(self._asked_language)

    def _cut(self) -> int:
        """Length of the first clause; 0 if it isn't complete yet."""
        end = sentence_end(self._raw, self._style)
        text = self._raw[:end] if end else self._raw.rstrip()
        _, count = self._rules(self._language(len(text)))
        if count(text) <= self._longest:
            return end
        return len(next(bounded(text, self._longest, count, self._normaliser.special)))

    def _take(self, cut: int, last: bool) -> Iterator[Clause]:
        """Normalise the first ``cut`` characters of what is left."""
        language = self._language(cut)
        part, self._raw = self._raw[:cut], self._raw[cut:]
        self._taken += part
        style, count = self._rules(language)
        part = part.rstrip() if last else part
        part = part.lstrip() if self._begins else part
        self._begins = self._begins and not part
        text = self._spaces + self._normaliser.part(part, language, following=self._raw[:1])
        if last:
            text = complete(self._normaliser.ending(text, language), style)
        parts = list(sentences(text, style))
        # Spaces after the last mark open the next clause.
        self._spaces = parts.pop() if parts and parts[-1].isspace() else ""
        bounds = bounded("".join(parts), self._longest, count, self._normaliser.special)
        texts = list(filter(is_speakable, bounds))
        for number, clause in enumerate(texts, 1):
            if number == len(texts):
                self._spoken = self._characters()
            spoken = self._tag + self._pronounced(clause, language)
            self._any = True
            yield Clause(spoken, self._pause(), self._manner, self._paragraph(), characters=self._spoken)

    def _characters(self) -> int:
        """Characters that came up to the end of what has been taken."""
        return self._controls.characters(self._reader.characters(len(self._taken)))

    def _style(self, cut: int) -> SplitStyle | None:
        """How the text up to there is split; None where the words to come may tell its language."""
        told = self._told(cut)
        if told is None:
            return None
        return self._rules(self._language(told))[0]

    def _language(self, cut: int) -> str:
        """Language of the text up to ``cut`` characters from here, or of a few words more that tell it."""
        before = self._taken[-_LOOKED_AT:]
        return self._normaliser.language(before + self._raw[: self._told(cut) or cut], self._asked_language)

    def _told(self, cut: int) -> int | None:
        """Where the language is told: at ``cut`` or a few words later; None if that may still come."""
        if language_tag(self._asked_language) != AUTO or not _DIGIT.search(self._raw, 0, cut):
            return cut
        spaces = _SPACE.finditer(self._raw, cut, cut + _AWAITED)
        ends = [cut, *(space.start() for space in spaces), *([len(self._raw)] if self._ends else [])]
        for end in ends:
            if is_told(self._taken[-_LOOKED_AT:] + self._raw[:end]):
                return end
        return cut if self._ends or len(self._raw) >= cut + _AWAITED else None
