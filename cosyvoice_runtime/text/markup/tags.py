"""Tags of HTML, of SSML and of chat models, by what they mean for a reader."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.markup.line_ends import Break

_NAMES_OF_PARAGRAPHS = """
    p div h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table tr thead tbody caption section article header footer
    blockquote hr pre s sentence paragraph speak title body html head details summary figure figcaption option
"""
_NAMES_OF_SILENT = """
    a b i u em strong small big sub sup span font mark del ins strike code kbd samp var tt abbr cite q img
    video audio source input label button form nav main meta link center time data picture svg path iframe
    prosody emphasis voice phoneme say-as lang w token amazon:effect mstts:express-as
    answer final response output result assistant user system message context document doc
"""
_KINDS = {
    **dict.fromkeys(_NAMES_OF_PARAGRAPHS.split(), Break.PARAGRAPH),
    **dict.fromkeys(_NAMES_OF_SILENT.split(), Break.NONE),
    **dict.fromkeys(("td", "th", "br", "break", "pause"), Break.PAUSE),
}
"""The break that a tag makes, by its name."""
_UNSPOKEN = "think|thinking|thought|reasoning|reflection|scratchpad|tool_call|function_call|script|style"
TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9:._-]{0,40})((?:\s[^<>]{0,300})?)/?>")
"""Finds one tag; the groups are its name and its attributes."""
UNSPOKEN = re.compile(rf"<({_UNSPOKEN})(?:\s[^<>]{{0,200}})?>", re.IGNORECASE)
"""Finds a tag whose whole content nobody should hear."""
_CUT = re.compile(
    r"(?:<(spell)(>[^<>]{0,300}(?:</?[spel]{0,5})?)|</?([A-Za-z_]{0,16})(\s[^<>\n]{0,100}|/)?"
    r"|\[([A-Za-z]{0,5})(:[ 0-9.]{0,10}[ms ]{0,3})?)\Z"
)
_OF_TAGS = ("break", "speed", "spell", "emotion", "volume", *_UNSPOKEN.split("|"))
_OF_BRACKETS = ("pause",)
_ATTRIBUTES = re.compile(r"(?:\s+[A-Za-z_:@.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))*\s*/?\s*\Z")
_PLACEHOLDER = re.compile(r"[A-Za-z][A-Za-z _-]{1,40}\Z")


def end_of(name: str) -> re.Pattern[str]:
    """Finds the tag that ends an unspoken one."""
    return re.compile(rf"</{re.escape(name)}\s*>", re.IGNORECASE)


def cut_off(text: str) -> int:
    """The place where a tag begins that the text's end cuts off, of those that are no words in any text; the
    text's length without one."""
    found = _CUT.search(text)
    if found is None:
        return len(text)
    spell, content, tag, attributes, bracket, value = found.groups()
    names = _OF_TAGS if bracket is None else _OF_BRACKETS
    name = next(each for each in (spell, tag, bracket) if each is not None).lower()
    is_whole = content or attributes or value
    is_cut = name in names if is_whole else any(each.startswith(name) for each in names)
    return found.start() if is_cut else len(text)


def meaning(tag: re.Match[str], glued: bool) -> Break | str | None:
    """The break that a tag makes, the words of a placeholder (``<name>``), or None where it is no tag.

    Args:
        glued: a letter or digit stands right before it, as in ``List<String>``.
    """
    name, attributes = tag[1].lower(), tag[2]
    if re.fullmatch(_UNSPOKEN, name):
        return Break.DROPPED
    if name in _KINDS:
        return _KINDS[name] if _ATTRIBUTES.match(attributes) else None
    if "=" in attributes or tag[0].endswith("/>"):
        return Break.NONE
    if glued:
        return None
    if tag[0].startswith("</"):
        return Break.NONE
    words = tag[0][1:-1]
    return words.replace("_", " ") if _PLACEHOLDER.match(words) else None
