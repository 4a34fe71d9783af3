"""A chunk of speech as a server sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client.words import NO_WORDS, TimedWord, read_words

SAMPLE_RATE = 24_000
TOKEN_RATE = 25
"""Sample rate assumed of a server that does not say its own."""
INCOMPLETE = "incomplete"
"""The ``finish_reason`` of speech that has stalled, behind which the rest of its text is not spoken."""


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A stretch of speech.

    Attributes:
        samples: float32 ``[n]`` in [-1, 1]; n may be 0.
        arrived_s: seconds from sending the request to this chunk.
        finish_reason: why a segment of the text ended (``stop``, ``length``, ...), on its last chunk;
            otherwise empty.
        spoken_characters: how many characters of the text are spoken by then, with the last chunk of a
            segment; of turns, with that of a turn. A request with this ``start_character`` goes on there.
        sample_rate: samples per second, the same for all chunks of a server.
        token_rate: speech tokens of a second at speed 1; alike.
        spoken_tokens: speech tokens that were drawn since the chunk before, and ends of segments, if the
            request asks for them; another server goes on from those of all chunks.
        words: some that are over by the end of this chunk, each told once, if the request asks for them.
        words_by: how they are timed, ``attention`` or ``estimate``; empty where the server tells no words.
        verification: with the last chunk of a segment that the request has verified: ``checked``, ``redraws``
            and ``findings``, each with ``kind``, ``text``, and ``start`` and ``end`` in characters.
        start_character: of the text, at which the speech begins, if the request asks for a later one than its
            first.
    """

    samples: npt.NDArray[np.float32]
    arrived_s: float
    finish_reason: str = ""
    spoken_characters: int | None = None
    sample_rate: int = SAMPLE_RATE
    token_rate: int = TOKEN_RATE
    spoken_tokens: Sequence[int] = ()
    words: Sequence[TimedWord] = ()
    words_by: str = ""
    verification: Mapping[str, Any] | None = None
    start_character: int | None = None

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


def read_chunk(result: Any, arrived_s: float) -> AudioChunk | None:
    """The chunk in a result of tritonclient; None for the response that only ends a stream."""
    waveform = result.as_numpy("waveform")
    if waveform is None:
        return None
    # Outputs after the waveform are missing from older servers.
    spoken = _number(result, "spoken_characters", -1)
    tokens, start = result.as_numpy("spoken_tokens"), _number(result, "start_character", -1)
    told, found = _bytes(result, "words"), _bytes(result, "verification")
    return AudioChunk(
        waveform.reshape(-1),
        arrived_s,
        _bytes(result, "finish_reason").decode(),
        None if spoken < 0 else spoken,
        _number(result, "sample_rate", SAMPLE_RATE),
        _number(result, "token_rate", TOKEN_RATE),
        () if tokens is None else tokens.reshape(-1).tolist(),
        *(read_words(told) if told else NO_WORDS),
        json.loads(found) if found else None,
        None if start < 0 else start,
    )


def _bytes(result: Any, name: str) -> bytes:
    tensor = result.as_numpy(name)
    return b"" if tensor is None or not tensor.size else tensor.reshape(-1)[0]


def _number(result: Any, name: str, default: int) -> int:
    tensor = result.as_numpy(name)
    return default if tensor is None or not tensor.size else int(tensor.reshape(-1)[0])
