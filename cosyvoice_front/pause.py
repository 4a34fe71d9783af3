"""What a text sounds like that has nothing to say."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncGenerator

import numpy as np

from cosyvoice_client import AudioChunk
from cosyvoice_front.rate import RATE

SECONDS = 0.3
WORDLESS = frozenset("PSZ")
"""First letters of Unicode's categories for what is no part of a word."""


def is_wordless(text: str) -> bool:
    """Whether it holds punctuation and symbols alone, which the server refuses to speak.

    Clients probe with such a text: Home Assistant's openai_tts with a full stop.
    """
    return all(unicodedata.category(character)[0] in WORDLESS for character in "".join(text.split()))


async def pause() -> AsyncGenerator[AudioChunk, None]:
    """A short silence, as speech that comes to its end."""
    yield AudioChunk(np.zeros(round(SECONDS * RATE), np.float32), 0.0, "stop")
