"""A language tag at the start of a text, for speech LMs that are told the language so: ``<|yue|>你好``."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from cosyvoice_runtime.language_names import AUTO, language_tag


class TaggedText(NamedTuple):
    """
    Attributes:
        tag: that every segment begins with; may be empty.
        words: after it, which are normalised and split as any text is.
    """

    tag: str
    words: str

    def language(self, asked: str) -> str:
        """The language of the tag, unless another language is asked for."""
        return self.tag.strip("<|>") if self.tag and language_tag(asked) == AUTO else asked


class LanguageTags:
    """
    Args:
        tags: that the speech LM knows; none of one that knows none.
    """

    def __init__(self, tags: Collection[str] = ()) -> None:
        self._leading = re.compile(rf"\s*({'|'.join(map(re.escape, tags))})") if tags else re.compile("(?!)")

    def part(self, text: str) -> TaggedText:
        """The tag that the text begins with, and its words."""
        match = self._leading.match(text)
        return TaggedText(match[1], text[match.end() :]) if match else TaggedText("", text)
