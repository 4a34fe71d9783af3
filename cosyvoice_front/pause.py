"""The sound of a text that has nothing to say."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np

from cosyvoice_client import AudioChunk
from cosyvoice_front.rate import RATE
from cosyvoice_runtime.speakable import is_speakable, visible
from cosyvoice_runtime.text.markup.unsaid import blanked

SECONDS = 0.3


def is_wordless(text: str, markup: str | None = None) -> bool:
    """Whether it holds punctuation, symbols, tags and what nobody sees alone.

    The server refuses to speak it. Clients probe with such a text: Home Assistant's openai_tts with a
    full stop.
    """
    return not is_speakable(visible(blanked(text, markup)))


async def pause() -> AsyncGenerator[AudioChunk, None]:
    """A short silence without speech tokens, as speech that comes to its end."""
    yield AudioChunk(np.zeros(round(SECONDS * RATE), np.float32), 0.0, "stop", token_rate=0)
