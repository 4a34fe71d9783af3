"""Texts that go to a front in pieces, over either of its websockets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.fleet.front import Front
from tests.fleet.listeners import SEED, Samples
from wire_client import asked, audio_in, open_cartesia, open_omni

PIECES = ("Where did she put the 3", ".14 of it? No id", "ea. It is la", "te; go on.")
LONGEST_WAIT_MS = 5000
"""For more of a segment: as long as a socket can be told, for a busy machine sends pieces late."""


def cartesia(front: Front, pieces: Sequence[str] = PIECES) -> Samples:
    """All samples of a context whose text comes in these pieces."""
    with open_cartesia(front) as wire:
        options = {"seed": SEED, "max_buffer_delay_ms": LONGEST_WAIT_MS, "add_timestamps": None}
        wire.send(*(asked(piece, **{"continue": True}, **options) for piece in pieces))
        wire.send(asked("", **{"continue": False}, **options))
        return np.round(audio_in(wire.until("done")) * 32768).astype(np.int16)


def omni(front: Front, pieces: Sequence[str] = PIECES) -> Samples:
    """All samples of an utterance whose text comes in these pieces."""
    with open_omni(front) as wire:
        options = {"response_format": "pcm", "seed": SEED, "max_buffer_delay_ms": LONGEST_WAIT_MS}
        wire.send({"type": "session.config", "voice": "default", **options})
        wire.send(*({"type": "input.text", "text": piece} for piece in pieces), {"type": "input.done"})
        messages = wire.until("audio.done")
        assert not messages[-1]["error"], messages[-1]
        audio = b"".join(each for each in messages if isinstance(each, bytes))
        return np.frombuffer(audio, "<i2")


SOCKETS = {"cartesia": cartesia, "omni": omni}
