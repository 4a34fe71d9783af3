"""How a context speaks."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_client import SpeechRequest
from cosyvoice_client.encoders import Encoder


@dataclass(frozen=True)
class Manner:
    """
    Attributes:
        request: voice, speed and so on; its text is empty.
        encoder: of the context's audio.
        with_words: whether the listener wants to know when each word is heard.
        most_delay_s: how long text that has not come to an end waits for more.
    """

    request: SpeechRequest
    encoder: Encoder
    with_words: bool
    most_delay_s: float
