"""Marked-up words inside a line, each found at one place: links, code, tags, entities, formulae, emphasis."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import NamedTuple

from cosyvoice_runtime.audio.audio import MAX_SPEED, MIN_SPEED
from cosyvoice_runtime.text.markup import arrows, latex, pauses, silent, tags
from cosyvoice_runtime.text.markup.line_ends import Break
from cosyvoice_runtime.text.markup.markdown import link_words
from cosyvoice_runtime.text.markup.said import Manner, Pause


class Mark(NamedTuple):
    """Something that is not said as it is written.

    Attributes:
        end: position after it.
        words: said instead.
        kind: of the break that it makes.
        after: kind of the break that follows its words.
        read: the words may be marked up themselves.
        until: finds the end of a part that is left out.
        item: a silence, or another pace from here on.
        spelled: the words are said letter by letter.
    """

    end: int
    words: str = ""
    kind: Break = Break.NONE
    after: Break = Break.NONE
    read: bool = False
    until: re.Pattern[str] | None = None
    item: Pause | Manner | None = None
    spelled: bool = False


class Wait(Exception):
    """More of the text must come before it is known what stands here."""


class Here(NamedTuple):
    """A place in a text.

    Attributes:
        complete: nothing follows the text.
        bold: the run of stars that is open in this line.
    """

    text: str
    start: int
    complete: bool
    bold: str

    def match(self, whole: re.Pattern[str], begun: re.Pattern[str] | None = None) -> re.Match[str] | None:
        """The match here; :class:`Wait` while more text could make one, or make it longer."""
        found = whole.match(self.text, self.start)
        if not self.complete:
            if found and found.end() == len(self.text):
                raise Wait
            if not found and begun and begun.match(self.text, self.start):
                raise Wait
        return found

    @property
    def before(self) -> str:
        return self.text[self.start - 1 : self.start] if self.start else ""


_LABEL = r"(?:[^\[\]\n\\]|\\.|\[[^\[\]\n]{0,100}\]){0,200}"
_TARGET = r"(?:[^()\n\\]|\\.|\([^()\n]{0,200}\)){0,600}"
_LINK = re.compile(rf"!?\[{_LABEL}\]\({_TARGET}\)")
_LINK_BEGUN = re.compile(
    rf"!?\[{_LABEL}(?:\](?:\({_TARGET}(?:\([^()\n]{{0,200}}|\\)?)?|\[[^\[\]\n]{{0,100}}|\\)?\Z|!\Z"
)
_IMAGE = re.compile(r"\[?!\[")
_BLANK = " \t>#*+-•–"
"""Spaces, and signs with which a line begins."""
_BEFORE_A_PHRASE = "\r\n.!?:;…。！？：；)"
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,20}\]|\[/?INST\]")
_PAUSE = re.compile(r"\[pause:? ?([0-9.]{1,8} ?m?s?)\]", re.IGNORECASE)
_SPELL = re.compile(r"<spell>([^<>]{1,300})</spell>")
_SPELL_BEGUN = re.compile(r"<spell>[^<>]{0,300}(?:</?s?p?e?l?l?)?\Z")
_PACE = re.compile(r"<speed\s+ratio=([\"'])([0-9](?:\.[0-9]{0,4})?|\.[0-9]{1,4})\1\s*/>")
_VALUE = r"\s*=\s*(?:\"([^\"<>]{0,20})\"|'([^'<>]{0,20})'|([^\s\"'<>=/]{1,20}))"
_BREAK = re.compile(rf"<break((?:\s+(?:time|strength){_VALUE}){{1,2}})\s*/?>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rf"(time|strength){_VALUE}", re.IGNORECASE)
_SOURCES = re.compile(
    r"(?:(?<=[^\W\d_]{3})|(?<=[.,;!?)\]”\"。，；！？）]))(?:\[[1-9][0-9]?\])+|(?<=\s)(?:\[[1-9][0-9]?\])+(?=[.,;。，；])"
)
_SOURCES_BEGUN = re.compile(r"(?:\[[1-9][0-9]?\])+(?:\[[0-9]{0,2})?\Z")
_CITATION = re.compile(r"【[^】\n]{1,30}[†:][^】\n]{0,40}】")
_CITATION_BEGUN = re.compile(r"【[^】\n]{0,70}\Z")
_CODE = re.compile(r"(`+)(?!`)([^\n]{1,300}?)(?<!`)\1(?!`)")
_NAMED_VALUE = re.compile(r"(?<![\w<>])<(?!(?:spell|break|speed)\b)([A-Za-z][A-Za-z0-9_ -]{0,30})>(?!\w)")
"""A value's name, or a tag that is mentioned, whose brackets nobody says: ``cd <folder>``."""
_CODE_BEGUN = re.compile(r"`+[^\n]{0,300}\Z")
_TOKEN = re.compile(r"<\|im_start\|>(?:system|user|assistant)(?=\s*\n|<\|)|<\|[^|<>\s]{1,40}\|>")
_TOKEN_BEGUN = re.compile(r"<\|im_start\|>(?:[a-z]{0,9}|(?:system|user|assistant)\s*<?)\Z")
_HEART = re.compile(
    r"(?:(?<=[^\W\d_]{2} )|(?<=[!.?~] )|(?<![\s\S]))<3+(?=[ \t]*(?:[\n\r!~]|\Z|(?<= )[A-Z]|[^\x00-\x7f]))"
)
_LOVED = re.compile(r"(?:(?<=\bI )|(?<=\b[WwUu]e )|(?<=\b[Yy]ou ))<3+(?=[ \t]*[^\s0-9%$])")
_HEART_BEGUN = re.compile(r"<3+[ \t]*\Z")
_COMMENT = re.compile(r"<!--.{0,2000}?-->", re.DOTALL)
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]{1,300}|[\w.+-]{1,64}@[\w.-]{1,100})>")
_LESS_BEGUN = re.compile(r"<(?:[A-Za-z/][^<>\n]{0,300}|!-?(?:-.{0,2000})?|\|[^|<>\s]{0,40}\|?)?\Z", re.DOTALL)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ENTITY_BEGUN = re.compile(r"&[#A-Za-z0-9]{0,32}\Z")
_ROUND = re.compile(r"\\\((.{1,400}?)\\\)", re.DOTALL)
_SQUARE = re.compile(r"\\\[(.{1,1500}?)\\\]", re.DOTALL)
_BRACES = r"\{[^{}\n]{0,80}(?:\{[^{}\n]{0,40}\}[^{}\n]{0,40}){0,4}"
_COMMAND = re.compile(rf"\\([A-Za-z]{{2,12}})(?![A-Za-z])(?:\[[0-9]\])?(?:{_BRACES}\}}){{0,3}}")
_COMMAND_BEGUN = re.compile(
    rf"\\[A-Za-z]{{0,12}}(?:\[[0-9]?\]?)?(?:{_BRACES}\}}){{0,2}}(?:{_BRACES}(?:\{{[^{{}}\n]{{0,40}})?)?\Z"
)
_BACKSLASH_BEGUN = (re.compile(r"\\\(.{0,400}\Z|\\\[.{0,1500}\Z", re.DOTALL), _COMMAND_BEGUN)
_ESCAPED = re.compile(r"\\([*_`#\[\]()~>|{}$+.!<&-])")
_DISPLAY = re.compile(r"\$\$(?!\$)(.{1,1500}?)\$\$", re.DOTALL)
_DISPLAY_BEGUN = re.compile(r"\$\$(?!\$).{0,1500}\Z|\$\Z", re.DOTALL)
_DOLLARS = re.compile(r"\$([^\s$](?:[^$\n\\]|\\.){0,200}?)(?<!\s)\$(?![0-9])")
_DOLLARS_BEGUN = re.compile(r"\$([^\s$](?:[^$\n\\]|\\.){0,200}\\?)\$?\Z")
_POWER = re.compile(r"(?:(?<=[0-9])\*\*(?=[0-9A-Za-z])|(?<=\b[A-Za-z])\*\*(?=[0-9]))")
_RUN = re.compile(r"([*_~])\1*")
_ALNUM = re.compile(r"[A-Za-z0-9]")
_ADDRESS = re.compile(r"(?:://|www\.|[\w.]@)[^\s\u3000-\u9fff，。]{0,200}\Z")
_GAP = re.compile(r"(?<=\s)\|(?=\s)")
_GAP_BEGUN = re.compile(r"(?<=\s)\|\Z")
_LINE_END = re.compile("[\n\r]")
_TICKS = re.compile("`+")


def link(here: Here) -> Mark | None:
    """``[words](address)``, ``![words](address)``; notes (``[^1]``) and sources (``town[1].``) are silent."""
    if (found := here.match(_PAUSE)) and (pause := pauses.of_chat_model(found[1])):
        return Mark(found.end(), item=pause)
    if found := here.match(_FOOTNOTE) or here.match(_SOURCES, _SOURCES_BEGUN):
        return Mark(found.end(), kind=Break.DROPPED)
    found = here.match(_LINK, _LINK_BEGUN)
    words = link_words(found[0]) if found else None
    if found is None or words is None:
        return None
    if words and _IMAGE.match(found[0]) and _begins_phrase(here):
        return Mark(found.end(), words, Break.PAUSE, after=Break.IMAGE, read=True)
    return Mark(found.end(), words, read=True)


def _begins_phrase(here: Here) -> bool:
    before = here.text[max(0, here.start - 80) : here.start].rstrip(_BLANK)
    return not before or before[-1] in _BEFORE_A_PHRASE


def citation(here: Here) -> Mark | None:
    """Marks of sources such as ``【4:0†source】`` are left out."""
    found = here.match(_CITATION, _CITATION_BEGUN)
    return Mark(found.end()) if found else None


def code(here: Here) -> Mark | None:
    """Code in a line without its marks; a mark that opens nothing is left out, unless it is inside a word."""
    if found := here.match(_CODE, _CODE_BEGUN):
        return Mark(found.end(), _NAMED_VALUE.sub(r"\1", found[2].strip()))
    found = _TICKS.match(here.text, here.start)
    assert found is not None
    inside = _ALNUM.match(here.before) and _ALNUM.match(here.text, found.end())
    return None if inside else Mark(found.end())


def less(here: Here) -> Mark | None:
    """Tags, comments, tokens of models and addresses between ``<`` and ``>``."""
    begun = (_TOKEN_BEGUN, _HEART_BEGUN)
    if not here.complete and any(pattern.match(here.text, here.start) for pattern in begun):
        raise Wait
    for pattern in (_TOKEN, _COMMENT, _HEART):
        if found := here.match(pattern):
            return Mark(found.end(), kind=Break.DROPPED)
    if found := here.match(_LOVED):
        return Mark(found.end(), "love")
    if found := here.match(_AUTOLINK):
        return Mark(found.end(), found[1].removeprefix("mailto:"))
    if found := here.match(_SPELL, _SPELL_BEGUN):
        return Mark(found.end(), found[1], spelled=True)
    if (found := here.match(_BREAK)) and (pause := _silence(found[1])):
        return Mark(found.end(), item=pause)
    if found := here.match(_PACE):
        return Mark(found.end(), item=Manner(min(max(float(found[2]), MIN_SPEED), MAX_SPEED)))
    if found := here.match(tags.UNSPOKEN):
        return Mark(found.end(), kind=Break.PARAGRAPH, until=tags.end_of(found[1]))
    found = here.match(tags.TAG, _LESS_BEGUN)
    meaning = tags.meaning(found, bool(_ALNUM.match(here.before))) if found else None
    if found is None or meaning is None:
        return None
    return Mark(found.end(), meaning) if isinstance(meaning, str) else Mark(found.end(), kind=meaning)


def _silence(attributes: str) -> Pause | None:
    """The silence of a ``break``; None where its values say none."""
    given = {name.lower(): "".join(values) for name, *values in _ATTRIBUTE.findall(attributes)}
    return pauses.of_chat_model(given.get("time"), given.get("strength"))


def entity(here: Here) -> Mark | None:
    """``&amp;``, ``&#39;``, ``&nbsp;``."""
    found = here.match(_ENTITY, _ENTITY_BEGUN)
    words = html.unescape(found[0]) if found else ""
    if found is None or words == found[0]:
        return None
    return Mark(found.end(), words.replace("\u00a0", " "))


def backslash(here: Here) -> Mark | None:
    r"""``\(x^2\)``, ``\[...\]``, ``\frac{1}{2}`` without marks around it, ``\*``."""
    for pattern in (_ROUND, _SQUARE):
        if found := here.match(pattern):
            return Mark(found.end(), latex.plain_formula(found[1]))
    if not here.complete and any(begun.match(here.text, here.start) for begun in _BACKSLASH_BEGUN):
        raise Wait
    found = here.match(_COMMAND)
    if found and here.before != ":" and found[1] in latex.COMMANDS:
        return Mark(found.end(), _loose(found[0], here))
    found = here.match(_ESCAPED)
    return Mark(found.end(), found[1]) if found else None


def dollar(here: Here) -> Mark | None:
    """``$x^2$`` and ``$$x^2$$``, which no two amounts with words between them are."""
    if _ALNUM.match(here.before):
        return None
    found = here.match(_DISPLAY, _DISPLAY_BEGUN)
    if found is None:
        begun = _DOLLARS_BEGUN.match(here.text, here.start)
        if begun and not here.complete and latex.may_be_formula(begun[1]):
            raise Wait
        found = _DOLLARS.match(here.text, here.start)
        if found is None or not latex.is_formula(found[1]):
            return None
    return Mark(found.end(), latex.plain_formula(found[1]))


def emphasis(here: Here) -> Mark | None:
    """``**``, ``_``, ``~~`` beside a word are left out; in ``2 * 3``, ``2*3``, ``a_b`` they stay."""
    found = here.match(_RUN)
    assert found is not None
    sign, run, before = found[1], found[0], here.before
    after = here.text[found.end() : found.end() + 1]
    if sign == "~":
        return Mark(found.end()) if len(run) == 2 else None
    if run == here.bold and not before.isspace():
        return Mark(found.end())
    if here.match(_POWER):
        return Mark(found.end(), "^")
    if (not before or before.isspace()) and (not after or after.isspace()) and len(run) < 3:
        return None
    if sign == "_" and (_is_word(before) and _is_word(after)):
        return None
    if _ALNUM.match(before) and (_ALNUM.match(after) or (before.isdigit() and sign == "*")):
        return None
    if _ADDRESS.search(here.text[max(0, here.start - 210) : here.start]):
        return None
    return Mark(found.end())


def bar(here: Here) -> Mark | None:
    """``|`` between spaces, as between the cells of a row, is a pause."""
    found = here.match(_GAP, _GAP_BEGUN)
    return Mark(found.end(), kind=Break.PAUSE) if found else None


def step(here: Here) -> Mark | None:
    """``>`` between the steps of a menu is a pause; one that compares stays."""
    line = _LINE_END.split(here.text[here.start + 1 : here.start + 1 + arrows.REACH], maxsplit=1)
    if len(line) == 1 and len(line[0]) < arrows.REACH and not here.complete:
        raise Wait
    before = _LINE_END.split(here.text[max(0, here.start - 2 * arrows.REACH) : here.start])[-1]
    spaced = here.before.isspace() == line[0][:1].isspace()
    if not spaced or not arrows.is_step(before, line[0]):
        return None
    return Mark(here.start + 1, kind=Break.PAUSE)


def unsaid(here: Here) -> Mark | None:
    """Emoji and ornaments are left out; arrows are a pause."""
    if here.match(_TEMPO, _TEMPO_BEGUN):
        return None
    found = here.match(silent.RUN)
    if found is None:
        return None
    return Mark(found.end(), kind=Break.PAUSE if silent.ARROW.search(found[0]) else Break.DROPPED)


_TEMPO = re.compile(r"[\u2669\u266a]\.? ?[=≈] ?(?=[0-9])")
_TEMPO_BEGUN = re.compile(r"[\u2669\u266a]\.? ?[=≈]? ?\Z")
"""Notes are ornaments, too."""


def _loose(command: str, here: Here) -> str:
    """A command's words, apart from letters beside them."""
    words = latex.plain_formula(command)
    return f" {words} " if _ALNUM.match(here.before) and words[:1].isalnum() else words


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


MARKS: dict[str, Callable[[Here], Mark | None]] = {
    "!": link, "[": link, "【": citation, "`": code, "<": less, "&": entity, "\\": backslash, "$": dollar,
    "*": emphasis, "_": emphasis, "~": emphasis, "|": bar, ">": step, "›": step,
}  # fmt: skip
"""The reader of what may begin with a character; others in question are unsaid."""
QUESTIONED = re.compile(rf"[*_~`\[<>›&\\$|【{silent.SILENT}]|!(?=\[|\Z)")
"""Finds a character that may begin something that is not said as it is written."""
