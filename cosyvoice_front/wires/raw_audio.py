"""Encoders of Cartesia's that OpenAI's API has no use for: samples without a container, mp3 of a bit rate."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from cosyvoice_client.encoders import (
    CODECS,
    Codec,
    CodecEncoder,
    Encoder,
    PcmEncoder,
    Samples,
    at_rate,
)
from cosyvoice_front.rate import RATE

Encoding = Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]
TELEPHONY = {
    "pcm_mulaw": Codec("mulaw", "pcm_mulaw", "s16"),
    "pcm_alaw": Codec("alaw", "pcm_alaw", "s16"),
}
"""G.711's encodings, by ffmpeg's names."""


def make_raw_encoder(encoding: Encoding, rate: int) -> Encoder:
    """Mono samples of 24 kHz to bare ones of ``rate``."""
    if encoding == "pcm_s16le":
        return _at(PcmEncoder(), rate)
    if encoding == "pcm_f32le":
        return _at(FloatEncoder(), rate)
    return _at(CodecEncoder(TELEPHONY[encoding], rate), rate)


def make_mp3_encoder(rate: int, bit_rate: int) -> Encoder:
    """The same to mp3 of so many bits a second."""
    codec = CODECS["mp3"]
    codec = replace(codec, options={**codec.options, "b": str(bit_rate)})
    return _at(CodecEncoder(codec, rate), rate)


def _at(encoder: Encoder, rate: int) -> Encoder:
    return at_rate(encoder, rate, RATE)


class FloatEncoder:
    """Little-endian 32-bit floats."""

    instant = True

    def feed(self, samples: Samples) -> bytes:
        return np.clip(samples, -1.0, 1.0).astype("<f4").tobytes()

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is held."""
