"""When each word of a speech is heard, as a server tells it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)


class TimedWord(NamedTuple):
    """A word as it was sent; seconds count from the first sample of the speech."""

    text: str
    start_s: float
    end_s: float


class ToldWords(NamedTuple):
    """
    Attributes:
        words: that are over by the end of a chunk and were not told before.
        by: how they are timed, ``attention`` or ``estimate``; empty where the server tells no words.
    """

    words: Sequence[TimedWord]
    by: str


NO_WORDS = ToldWords((), "")


def read_words(told: bytes) -> ToldWords:
    """Read the JSON of a chunk. What is no such JSON is no words, which the log tells once."""
    try:
        content = json.loads(told)
        words, by = [_word(each) for each in content["words"]], content["by"]
        if isinstance(by, str):
            return ToldWords(words, by)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    _tell_unread()
    return NO_WORDS


def _word(told: dict[str, Any]) -> TimedWord:
    text, start_s, end_s = told["text"], told["start_s"], told["end_s"]
    if not (isinstance(text, str) and math.isfinite(start_s) and math.isfinite(end_s)):
        raise ValueError
    return TimedWord(text, start_s, end_s)


@lru_cache(maxsize=1)
def _tell_unread() -> None:
    logger.warning("words of a server can't be read and are left out: JSON of by and words is expected")
