"""What a listener gets out of the front's bytes, decoded by ffmpeg."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from typing import Any

import av
import numpy as np
import numpy.typing as npt

FRAME_SAMPLES = {
    "mp3": 576,
    "opus": 480,
    "aac": 1024,
    "flac": 480,
    "wav": 1,
    "pcm": 1,
    "g711_ulaw": 1,
    "g711_alaw": 1,
}
"""Samples of a frame at 24 kHz: MPEG-2 layer III's, 20 ms, AAC's, and as the encoder is told."""
DELAY_SAMPLES = {"mp3": 1105, "aac": 1024}
"""What codecs put in front of the sound where the format has no room to say so: LAME's 576 and the decoder's
529 samples (https://lame.sourceforge.io/tech-FAQ.txt), a frame of AAC."""


RAW = {"g711_ulaw": "mulaw", "g711_alaw": "alaw"}
"""Formats of bare samples, by ffmpeg's names."""


def decode(data: bytes, format: str, rate: int = 24_000) -> npt.NDArray[np.float32]:
    """Mono samples in [-1, 1] at ``rate``, which bare samples have, without the codec's delay."""
    if format == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768
    resampler = av.AudioResampler(format="flt", layout="mono", rate=rate)
    pieces = []
    options = {"sample_rate": str(rate)} if format in RAW else {}
    with av.open(BytesIO(data), format=RAW.get(format), options=options) as container:
        for frame in container.decode(audio=0):
            pieces += [part.to_ndarray()[0] for part in resampler.resample(frame)]
    pieces += [part.to_ndarray()[0] for part in resampler.resample(None)]
    return np.concatenate(pieces)[DELAY_SAMPLES.get(format, 0) :]


def events(body: bytes) -> list[dict[str, Any]]:
    """Server-sent events of a body."""
    lines = [line for line in body.decode().split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def audio_of(found: list[dict[str, Any]]) -> bytes:
    """The file that the deltas make."""
    return b"".join(
        base64.b64decode(event["audio"]) for event in found if event["type"] == "speech.audio.delta"
    )
