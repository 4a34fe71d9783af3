"""The way through a marked-up text, which may come in pieces, to what a reader would say aloud."""

from __future__ import annotations

import re
from collections.abc import Callable

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import QWEN2_TOKENS, SOUND_TOKENS
from cosyvoice_runtime.text.markup import arrows, blocks, emoji_names
from cosyvoice_runtime.text.markup.announced import announcement
from cosyvoice_runtime.text.markup.blocks import Block
from cosyvoice_runtime.text.markup.inline import MARKS, QUESTIONED, Here, Mark, Wait, unsaid
from cosyvoice_runtime.text.markup.line_ends import Break
from cosyvoice_runtime.text.markup.markdown import table_rows
from cosyvoice_runtime.text.markup.options import MarkupOptions
from cosyvoice_runtime.text.markup.output import Output
from cosyvoice_runtime.text.markup.said import Said
from cosyvoice_runtime.text.markup.tags import cut_off
from cosyvoice_runtime.text.reading.languages.known import language_of

LINE_END = re.compile(r"\r\n|[\r\n]")
_SPACES = re.compile(r"[ \t]+")
_EMPTY_LINES = re.compile(r"(?:\r\n|[\r\n])(?:[ \t]*+(?:\r\n|[\r\n]))++[ \t]*+")
"""Finds the empty lines between two paragraphs of a text without markup."""
_INTEREST = re.compile(rf"{QUESTIONED.pattern}|[\r\n]")
MAY_BE_MARKED = re.compile(rf"{QUESTIONED.pattern}|[\r\n]|\A\s*(?:[#>+–—·•-]|[0-9]{{1,3}}[.)])")
_NO_CELL = re.compile(r"[\s—–-]*")
"""A cell of a table that is empty, or says so by a dash."""
_ANSWER = re.compile("\\s*(?:(?P<tick>[✅✔☑✓√])|[❌✗✘✖❎])\ufe0f?\\s*")
_ANSWERS = {"zh": ("是", "否"), "de": ("ja", "nein")}
_SOUNDS = re.compile("|".join(map(re.escape, SOUND_TOKENS)))
"""Finds sounds, which CosyVoice-300M reads as letters."""
_CONTEXT = 300
"""Characters that are kept of what has been read."""
_ENOUGH, _ENOUGH_WIDE, _FIRST_WIDE = 16, 4, "\u3040"
"""Letters of what was said that tell it alone, of alphabets and of East Asia, whose first kana is the third;
of fewer, what follows tells it, too."""
_TO_COME = 40
_NO_LETTERS = re.compile(r"[\W\d_]+")
"""Finds what is no letter."""
_UNTOLD = "en"
"""The language of such words where nothing tells it."""


class MarkupReader:
    """Turns marked-up text into what is said, as it comes: the same words whatever the pieces.

    What may be markup waits until it is known: a heading's sign for its line's first word, a link for its
    address, a table for its end. All else passes at once, as it is.

    Args:
        special: finds tokens that are never changed.
        tell: the language of what was said, in which words are that stand nowhere in the text.
    """

    def __init__(
        self,
        special: re.Pattern[str],
        options: MarkupOptions,
        tell: Callable[[str], str],
        depth: int = 0,
    ) -> None:
        self._options = options
        self._special = special
        self._tell = tell
        self._depth = depth
        self._text = ""
        self._at = 0
        self._written = 0  # Characters before self._text.
        self._item = 0
        self._until: re.Pattern[str] | None = None
        self._fence = ""
        self._unannounced = ""
        self._out = Output()
        self._begin()

    def _begin(self) -> None:
        """Forget what was before: what comes is the start of a text."""
        self._starts_line = self._depth == 0
        self._is_heading = False
        self._bold = ""

    def push(self, text: str) -> list[Said]:
        """Take more text; return what is known of what is said."""
        self._take(text, complete=False)
        return self._out.taken()

    def flush(self) -> list[Said]:
        """Return the rest of what is said, as if the text ended here; more may follow, that of a tag which
        has begun."""
        cut = max(self._at, cut_off(self._text))
        kept, self._text = self._text[cut:], self._text[:cut]
        said = self.end()
        self._text = kept
        return said

    def end(self) -> list[Said]:
        """Return the rest of what is said: the text has ended."""
        self._take("", complete=True)
        self._announce(_UNTOLD)
        self._out.end(self._written + self._at)
        self._written += len(self._text)
        self._text, self._at = "", 0
        self._begin()
        return self._out.taken()

    def characters(self, said: int) -> int:
        """Characters of what was written that are said with the first ``said`` characters."""
        return self._out.characters(said)

    def _take(self, text: str, complete: bool) -> None:
        self._text += text
        if self._options.markup == "plain":
            self._take_plain(complete)
            return
        try:
            while self._at < len(self._text):
                self._step(complete)
        except Wait:
            pass
        if self._at > 4 * _CONTEXT or self._at == len(self._text):
            cut = max(0, self._at - _CONTEXT)
            self._written += cut
            self._text, self._at = self._text[cut:], self._at - cut

    def _take_plain(self, complete: bool) -> None:
        """Say all that has come, but for the end of a line after which an empty one may come."""
        end = len(self._text if complete else self._text.rstrip(" \t\r\n"))
        for lines in _EMPTY_LINES.finditer(self._text, 0, end):
            self._say_up_to(lines.start())
            self._out.hold("", Break.BLANK)
            self._pass(lines.end())
        self._say_up_to(end)
        self._written += end
        self._text, self._at = self._text[end:], 0

    def _say_up_to(self, end: int) -> None:
        if end > self._at:
            self._say_here(end)

    def _step(self, complete: bool) -> None:
        """Read what stands at the place: some of it at least, or raise :class:`Wait`."""
        if self._until is not None:
            self._skip(self._until, complete)
        elif self._fence:
            self._skip_line(complete)
        elif ended := LINE_END.match(self._text, self._at):
            if ended[0] == "\r" and ended.end() == len(self._text) and not complete:
                raise Wait
            self._end_line(ended.end())
        elif self._starts_line:
            self._start_line(complete)
        else:
            self._read_on(complete)

    def _skip(self, until: re.Pattern[str], complete: bool) -> None:
        """Leave out a part up to the tag that ends it."""
        found = until.search(self._text, self._at)
        if found is None:
            self._pass(len(self._text) if complete else max(self._at, len(self._text) - 40))
            raise Wait
        self._until = None
        self._pass(found.end())

    def _skip_line(self, complete: bool) -> None:
        """Leave out a line of a block of code."""
        ended = LINE_END.search(self._text, self._at)
        if not complete and (ended is None or (ended[0] == "\r" and ended.end() == len(self._text))):
            raise Wait
        line = self._text[self._at : ended.start() if ended else len(self._text)].strip()
        end = ended.end() if ended else len(self._text)
        if line.startswith(self._fence) and not line.strip(self._fence[0]):
            if self._unannounced:
                self._announce(self._language_at(end, complete))
            self._fence = ""
        self._pass(end)

    def _end_line(self, end: int) -> None:
        """Hold a line's end until something is said after it."""
        kind = Break.PARAGRAPH if self._starts_line else Break.LINE
        if self._out.holds_line_end or self._is_heading:
            kind = Break.BLANK
        self._out.hold(self._text[self._at : end], kind)
        self._pass(end)
        self._begin()

    def _start_line(self, complete: bool) -> None:
        if spaces := _SPACES.match(self._text, self._at):
            self._out.hold(spaces[0])
            self._pass(spaces.end())
            return
        begins = blocks.beginning(self._text, self._at, complete, self._expected)
        if begins is None:
            raise Wait
        if begins.block is Block.TEXT:
            self._starts_line = False
        elif begins.block is Block.ROW:
            self._read_rows(complete)
        else:
            self._begin_block(begins)

    @property
    def _expected(self) -> int | None:
        """The number of the next item of a list; None for any."""
        return None if self._options.markup == "markdown" else self._item + 1

    def _begin_block(self, begins: blocks.Beginning) -> None:
        self._is_heading = begins.block is Block.HEADING
        self._out.hold("", Break.BLANK if self._is_heading else Break.PARAGRAPH)
        if begins.block is Block.FENCE:
            self._begin_code(begins)
        self._pass(begins.end)
        if begins.block is Block.NUMBER:
            self._item = int(begins.number)
            self._say(begins.number)
            self._out.hold("", Break.PAUSE)
        if begins.block in (Block.NUMBER, Block.HEADING):
            self._starts_line = False

    def _begin_code(self, begins: blocks.Beginning) -> None:
        self._fence = begins.number
        if self._options.code_blocks == "announced":
            self._unannounced = self._text[self._at : begins.end]
            if language := self._tell(self._out.heard):
                self._announce(language)

    def _announce(self, language: str) -> None:
        """Say what block of code this is, unless that was said or is not to be."""
        if self._unannounced:
            self._say(announcement(self._unannounced, language))
            self._out.hold("", Break.PARAGRAPH)
            self._unannounced = ""

    def _language_before(self) -> str:
        """The language that was asked for, or that of what was said; empty where that is little."""
        letters = _NO_LETTERS.sub("", self._out.heard)
        enough = _ENOUGH_WIDE if max(letters, default="") > _FIRST_WIDE else _ENOUGH
        return self._tell(self._out.heard if len(letters) >= enough else "")

    def _language_at(self, place: int, complete: bool) -> str:
        """The language before a place, or also of what follows there; :class:`Wait` until enough came."""
        if language := self._language_before():
            return language
        to_come = self._text[place : place + _TO_COME]
        if len(to_come) < _TO_COME and not complete:
            raise Wait
        return self._tell(f"{self._out.heard} {to_come}") or _UNTOLD

    def _read_rows(self, complete: bool) -> None:
        end = blocks.end_of_rows(self._text, self._at, complete)
        if end is None:
            raise Wait
        source = self._text[self._at : end]
        rows = table_rows(source) or [blocks.cells(row) for row in source.splitlines()]
        self._pass(end)
        for row in filter(None, rows):
            words = [
                said
                for cell in row
                if not _NO_CELL.fullmatch(said := self._answer(cell, source) or self._inner(cell))
            ]
            self._out.hold("", Break.PARAGRAPH)
            for number, said in enumerate(words):
                if number:
                    self._out.hold("", Break.PAUSE)
                self._say(said)
        self._out.hold("\n", Break.PARAGRAPH)

    def _answer(self, cell: str, source: str) -> str:
        """Yes or no for a cell of a table that holds but a tick or a cross; empty for another."""
        found = _ANSWER.fullmatch(cell) if self._options.emoji == "silent" else None
        if not found:
            return ""
        words = _ANSWERS.get(self._language_before() or self._tell(source), ("", ""))
        return words[0 if found["tick"] else 1]

    def _read_on(self, complete: bool) -> None:
        """Pass what is surely no markup, or read the mark that stands here."""
        found = _INTEREST.search(self._text, self._at)
        if found is None or found.start() > self._at:
            self._pass_on(found.start() if found else len(self._text))
            return
        if token := self._token():
            self._say_here(token)
            return
        here = Here(self._text, self._at, complete, self._bold)
        sign = self._text[self._at]
        mark = MARKS.get(sign, unsaid)(here)
        if mark is None:
            run = re.compile(re.escape(sign) + "+").match(self._text, self._at)
            self._say_here(run.end() if run and sign in "*_~" else self._at + 1)
            return
        if sign not in MARKS and self._options.emoji == "named" and self._say_names(mark.end, complete):
            return
        if mark.kind is Break.PAUSE and self._say_arrow(mark.end, complete):
            return
        if "→" in mark.words:
            mark = mark._replace(words=arrows.said(mark.words, self._language_at(mark.end, complete)))
        if sign == "*":
            self._bold = "" if self._bold else self._text[self._at : mark.end]
        self._apply(mark)

    def _say_names(self, end: int, complete: bool) -> bool:
        """Say the names of the emoji up to a place, with pauses; whether there are any."""
        names = emoji_names.names(self._text[self._at : end], self._language_at(end, complete))
        if names:
            self._pass(end)
        for name in names:
            self._out.hold("", Break.PAUSE)
            self._say(name)
            self._out.hold("", Break.PAUSE)
        return bool(names)

    def _say_arrow(self, end: int, complete: bool) -> bool:
        """Say the word for an arrow up to a place; False where it is a pause."""
        after = LINE_END.split(self._text[end : end + arrows.REACH], maxsplit=1)
        if len(after) == 1 and len(after[0]) < arrows.REACH and not complete:
            raise Wait
        before = LINE_END.split(self._text[max(0, self._at - 2 * arrows.REACH) : self._at])[-1]
        arrow, language = self._text[self._at : end], self._language_at(end, complete)
        word = arrows.word(arrow, before, after[0], language)
        if not word:
            return False
        self._pass(end)
        wide = language == "zh"
        self._out.hold("" if wide or before[-1:].isspace() else " ")
        self._say(word)
        self._out.hold("" if wide or after[0][:1].isspace() else " ")
        return True

    def _token(self) -> int:
        """The end of a special token that stands here, 0 if none does."""
        found = self._special.match(self._text, self._at) or _SOUNDS.match(self._text, self._at)
        return found.end() if found and found[0] not in QWEN2_TOKENS else 0

    def _apply(self, mark: Mark) -> None:
        self._pass(mark.end)
        self._until = mark.until
        if mark.item is not None and self._depth == 0:
            self._out.mark(mark.item)
            return
        if mark.spelled:
            mark = mark._replace(words=self._spelled(mark.words))
        self._out.hold("", mark.kind)
        words = self._inner(mark.words) if mark.read else mark.words
        if words:
            self._out.hold(words[: len(words) - len(words.lstrip())])
            self._say(words.strip())
            self._out.hold(words[len(words.rstrip()) :] if words.strip() else "", mark.after)

    def _spelled(self, words: str) -> str:
        """Words letter by letter, or as they are where something in them has no name."""
        from cosyvoice_runtime.text.reading.say_as import said_as  # with Chinese patterns

        told = self._tell(self._out.heard + words) or _UNTOLD
        language = language_of(told) or language_of(_UNTOLD)
        assert language is not None
        try:
            return said_as(words, "characters", "", language)
        except InvalidInput:
            return words

    def _inner(self, words: str) -> str:
        """The words of a link or a cell, which may be marked up themselves."""
        if self._depth >= 3:
            return words
        reader = MarkupReader(self._special, self._options, self._tell, self._depth + 1)
        said = reader.push(words) + reader.end()
        return "".join(part for part in said if isinstance(part, str)).strip()

    def _pass_on(self, end: int) -> None:
        """Say everything up to a place as it is written, its last spaces when more follows."""
        words = self._text[self._at : end]
        body = words.strip(" \t")
        if not body:
            self._out.hold(words)
            self._pass(end)
            return
        start = self._at + words.index(body)
        self._out.hold(self._text[self._at : start])
        self._at = start
        self._say_here(start + len(body))
        self._out.hold(self._text[self._at : end])
        self._at = end

    def _say_here(self, end: int) -> None:
        words = self._text[self._at : end]
        self._at = end
        self._say(words, same=True)

    def _pass(self, end: int) -> None:
        """Leave out what stands up to a place."""
        self._at = end

    def _say(self, words: str, same: bool = False) -> None:
        self._out.say(words, self._written + self._at, same)
