"""Text in: normalise, split, tokenise, lay out the prompt of the speech LM."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cosyvoice_runtime.text.clauses import Clause, ClauseStream
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.markup.said import Manner, Pause
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.split import SplitLimits

if TYPE_CHECKING:
    from cosyvoice_runtime.text.tokenizer import (
        TextPrompt,
        TextTokenizer,
        cross_lingual,
        instruct,
        read_tokenizer,
        zero_shot,
    )

__all__ = [
    "Clause",
    "ClauseStream",
    "Lexicon",
    "Manner",
    "Pause",
    "Segment",
    "SplitLimits",
    "TextFrontEnd",
    "TextPrompt",
    "TextTokenizer",
    "cross_lingual",
    "instruct",
    "read_tokenizer",
    "zero_shot",
]


def __getattr__(name: str) -> Any:
    """The names of the tokenizer, whose packages the front lacks, which reads texts without one."""
    if name in __all__:
        return getattr(import_module("cosyvoice_runtime.text.tokenizer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
