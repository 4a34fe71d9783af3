"""The speech tokens that a text has been spoken with, as a server tells them and another one goes on from.

All segments of the text stand in one list, the tokens of each as they were drawn. Behind those of a segment
that has ended stands a negative number, which says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason, TokenLimits

FIELD = "spoken_tokens"
MOST_SPOKEN = 1 << 16
"""Most tokens and ends of a request: three quarters of an hour at 25 a second."""
ENDS = {FinishReason.STOP: -1, FinishReason.LENGTH: -2, FinishReason.REPETITION: -3}
_REASONS = {end: reason for reason, end in ENDS.items()}


def told(tokens: Sequence[int], finish_reason: FinishReason | None) -> list[int]:
    """The next tokens of a segment, and its end if they are the last."""
    return [*tokens, *([ENDS[finish_reason]] if finish_reason in ENDS else [])]


def parted(spoken: Sequence[int]) -> tuple[Sequence[int], FinishReason | None]:
    """The tokens of one segment, and why it ended, if it has."""
    if spoken and spoken[-1] in _REASONS:
        return spoken[:-1], _REASONS[spoken[-1]]
    return spoken, None


def by_segment(spoken: npt.NDArray[np.int32], speech_tokens: int) -> list[list[int]]:
    """Divide what has been spoken by segments, each with its end.

    Args:
        spoken: int32 ``[numbers]``.
        speech_tokens: how many tokens the speech LM knows.

    Raises:
        InvalidInput: too many numbers, or one that is neither a token nor an end.
    """
    if len(spoken) > MOST_SPOKEN:
        raise InvalidInput(FIELD, f"{len(spoken)} numbers", f"at most {MOST_SPOKEN}")
    segments: list[list[int]] = [[]]
    for position, id_ in enumerate(spoken.tolist()):
        if id_ >= speech_tokens or (id_ < 0 and id_ not in _REASONS):
            limit = f"tokens are 0 to {speech_tokens - 1}, ends {min(_REASONS)} to {max(_REASONS)}"
            raise InvalidInput(FIELD, f"{id_} at position {position}", limit)
        segments[-1].append(id_)
        if id_ < 0:
            segments.append([])
    return segments if segments[-1] else segments[:-1]


def within(limits: TokenLimits, spoken: Sequence[int]) -> Sequence[int]:
    """Check what has been spoken of a segment, and end it where it is as long as it may be.

    Raises:
        InvalidInput: it is longer.
    """
    tokens, ended = parted(spoken)
    if len(tokens) > limits.max_tokens:
        limit = f"at most {limits.max_tokens}"
        raise InvalidInput(FIELD, f"{len(tokens)} tokens of a segment", limit)
    if len(tokens) == limits.max_tokens and ended is None:
        return told(tokens, FinishReason.LENGTH)
    return spoken
