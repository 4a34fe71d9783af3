"""Voices that are sent to a front."""

from __future__ import annotations

import time
from io import BytesIO
from typing import NamedTuple

import httpx2
import numpy as np
import soundfile

from drills.front import Front
from drills.listeners import RATE, TIMEOUT_S

PITCH_HZ = 220.0


class Answer(NamedTuple):
    """
    Attributes:
        code: of the error, empty without one.
    """

    status: int
    code: str


def recording(seconds: float = 2.0) -> bytes:
    """A tone, as a file."""
    times = np.arange(round(seconds * RATE)) / RATE
    file = BytesIO()
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * PITCH_HZ * times), RATE, format="FLAC")
    return file.getvalue()


def upload(front: Front, name: str, recorded: bytes) -> Answer:
    """Keep a voice; who is told to come back does."""
    fields = {"name": name, "ref_text": "A tone.", "consent": "I agree."}
    while True:
        answer = httpx2.post(
            f"{front.url}/v1/audio/voices",
            data=fields,
            files={"audio_sample": ("a.flac", recorded)},
            headers={"Authorization": "Bearer none"},
            timeout=TIMEOUT_S,
        )
        if answer.status_code != 503 or "retry-after-ms" not in answer.headers:
            error = {} if answer.is_success else answer.json()["error"]
            return Answer(answer.status_code, error.get("code") or "")
        time.sleep(int(answer.headers["retry-after-ms"]) / 1000)


def delete(front: Front, name: str) -> int:
    """Forget a voice; the status."""
    page = f"{front.url}/v1/audio/voices/{name}"
    return httpx2.delete(page, headers={"Authorization": "Bearer none"}, timeout=TIMEOUT_S).status_code
