"""Text in: normalise, split, tokenise, lay out the prompt of the speech LM."""

from cosyvoice_runtime.text.clauses import Clause, ClauseStream
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.markup.said import Manner, Pause
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.split import SplitLimits
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
