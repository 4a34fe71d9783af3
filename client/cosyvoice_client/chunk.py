"""What comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 24_000


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A stretch of speech.

    Attributes:
        samples: float32 ``[n]`` at 24 kHz, in [-1, 1]; n may be 0.
        arrived_s: seconds from sending the request to this chunk.
        finish_reason: why a segment of the text ended (``stop``, ``length``, ...), on its last chunk;
            otherwise empty.
        spoken_characters: of a text that was pushed piece by piece, how many are spoken by then; with the
            last chunk of a segment.
    """

    samples: npt.NDArray[np.float32]
    arrived_s: float
    finish_reason: str = ""
    spoken_characters: int | None = None

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def read_chunk(result: Any, arrived_s: float) -> AudioChunk | None:
    """The chunk in a result of tritonclient; None for the response that only ends a stream."""
    waveform = result.as_numpy("waveform")
    if waveform is None:
        return None
    reason = result.as_numpy("finish_reason")  # an output that older servers don't have, as the next
    text = "" if reason is None or not reason.size else reason.reshape(-1)[0].decode()
    spoken = result.as_numpy("spoken_characters")
    characters = -1 if spoken is None or not spoken.size else int(spoken.reshape(-1)[0])
    return AudioChunk(waveform.reshape(-1), arrived_s, text, characters if characters >= 0 else None)
