"""How a context speaks."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_client import SpeechRequest
from cosyvoice_client.encoders import Encoder


@dataclass(frozen=True)
class Manner:
    """
    Attributes:
        request: voice, speed and so on; its text is empty, and its ``words`` says whether the listener
            wants to know when each word is heard.
        format: name of the format of the context's audio.
        encoder: of that audio.
        most_delay_s: how long text that has not come to an end waits for more.
    """

    request: SpeechRequest
    format: str
    encoder: Encoder
    most_delay_s: float
