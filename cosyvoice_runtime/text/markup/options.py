"""How marked-up text is to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cosyvoice_runtime.errors import InvalidInput

TextMarkup = Literal["auto", "plain", "markdown", "ssml"]
Emoji = Literal["silent", "named"]
CodeBlocks = Literal["skipped", "announced"]
MARKUPS: tuple[str, ...] = get_args(TextMarkup)
EMOJI: tuple[str, ...] = get_args(Emoji)
CODE_BLOCKS: tuple[str, ...] = get_args(CodeBlocks)


@dataclass(frozen=True)
class MarkupOptions:
    """How the markup of a text is read.

    Attributes:
        markup: ``plain`` leaves the text as it is, ``markdown`` and ``ssml`` read them; ``auto`` is SSML for
            a text that begins with ``<speak>``, else Markdown.
        emoji: ``silent``, or ``named`` in the text's language.
        code_blocks: ``skipped``, or ``announced`` by a short sentence in the text's language.

    Raises:
        InvalidInput: a value is none of these.
    """

    markup: TextMarkup = "auto"
    emoji: Emoji = "silent"
    code_blocks: CodeBlocks = "skipped"

    def __post_init__(self) -> None:
        _require("text_markup", self.markup, MARKUPS)
        _require("emoji", self.emoji, EMOJI)
        _require("code_blocks", self.code_blocks, CODE_BLOCKS)


def _require(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(field, value, f"one of {', '.join(known)}")
