"""When an utterance ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from cosyvoice_runtime.lm.sampling_options import SamplingOptions


class FinishReason(str, Enum):
    """Why no further token follows."""

    STOP = "stop"
    """The model drew a stop id."""
    LENGTH = "length"
    """The most tokens allowed, or the cache, was reached."""
    REPETITION = "repetition"
    """The output had become one short cycle."""
    CANCELLED = "cancelled"
    ERROR = "error"


class TokenLimits(NamedTuple):
    """Fewest and most speech tokens of an utterance."""

    min_tokens: int
    max_tokens: int

    @classmethod
    def of(cls, options: SamplingOptions, num_text: int) -> TokenLimits:
        """Limits for ``num_text`` tokens of text (without the prompt's), unless the options fix them."""
        lowest, highest = options.min_tokens, options.max_tokens
        if lowest is None:
            lowest = int(options.min_ratio * num_text)
        if highest is None:
            highest = min(int(options.max_ratio * num_text), options.ceiling or sys.maxsize)
        return cls(min(lowest, highest), highest)


def is_runaway(tokens: Sequence[int], span: int, max_period: int) -> bool:
    """Whether the last ``span`` tokens repeat a cycle of at most ``max_period`` tokens.

    False for a span of 0. A cycle counts only if it fits into the span at least twice.
    """
    if not 0 < span <= len(tokens):
        return False
    last = tokens[-1]
    for period in range(1, min(max_period, span // 2) + 1):
        if tokens[-1 - period] == last and tokens[-span:-period] == tokens[len(tokens) - span + period :]:
            return True
    return False
