"""Encoders of speech that is brought to a loudness."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cosyvoice_client.encoders import Encoder, Format, Samples, at_rate, encoder_at
from cosyvoice_front.rate import RATE
from cosyvoice_runtime.audio.levelling import LOUDEST, SOFTEST, Leveller, make_leveller

TargetLufs = Annotated[float | None, Field(ge=SOFTEST, le=LOUDEST)]
"""The loudness that a request asks for, by Typecast's name; None leaves the samples as they are."""


def make_speech_encoder(
    format: Format, rate: int, target_lufs: float | None = None, *, whole: bool = False
) -> Encoder:
    """Make the encoder of an utterance of 24 kHz to a format of OpenAI's.

    Args:
        rate: samples per second of the file.
        target_lufs: its loudness; None leaves the samples as they are.
        whole: whether the file is held back to its end, so that all of it gets one gain.
    """
    return at_file_rate(encoder_at(format, rate), rate, target_lufs, whole=whole)


def at_file_rate(
    encoder: Encoder, rate: int, target_lufs: float | None = None, *, whole: bool = False
) -> Encoder:
    """Make an encoder that takes speech of 24 kHz of one that takes the file's rate.

    Speech is levelled at the file's rate, so that no filter comes behind the limiter.
    """
    if target_lufs is not None:
        encoder = LevelledEncoder(encoder, make_leveller(rate, target_lufs, whole=whole))
    return at_rate(encoder, rate, RATE)


class LevelledEncoder:
    """An encoder behind a change of the loudness."""

    instant = False

    def __init__(self, encoder: Encoder, leveller: Leveller) -> None:
        self._encoder = encoder
        self._leveller = leveller
        self.behind_s = encoder.behind_s + leveller.delay_s

    def feed(self, samples: Samples) -> bytes:
        return self._encoder.feed(self._leveller.push(samples))

    def finish(self) -> bytes:
        return self._encoder.feed(self._leveller.finish()) + self._encoder.finish()

    def close(self) -> None:
        self._encoder.close()
