"""Encoders of Cartesia's that OpenAI's API has no use for: samples without a container, mp3 of a bit rate."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from cosyvoice_client import g711
from cosyvoice_client.encoders import CODECS, CodecEncoder, Encoder, G711Encoder, PcmEncoder, Samples

Encoding = Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]
LAWS: dict[str, g711.Law] = {"pcm_mulaw": "ulaw", "pcm_alaw": "alaw"}


def make_raw_encoder(encoding: Encoding) -> Encoder:
    """Make an encoder of mono samples to bare ones."""
    if encoding == "pcm_s16le":
        return PcmEncoder()
    return FloatEncoder() if encoding == "pcm_f32le" else G711Encoder(LAWS[encoding])


def make_mp3_encoder(rate: int, bit_rate: int) -> Encoder:
    """Make one of mono samples of a rate to mp3 of so many bits a second."""
    codec = CODECS["mp3"]
    return CodecEncoder(replace(codec, options={**codec.options, "b": str(bit_rate)}), rate)


class FloatEncoder:
    """Little-endian 32-bit floats."""

    instant, behind_s = True, 0.0

    def feed(self, samples: Samples) -> bytes:
        return np.clip(samples, -1.0, 1.0).astype("<f4").tobytes()

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is held."""
