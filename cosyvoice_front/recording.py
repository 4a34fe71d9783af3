"""Recordings of a voice that somebody sent: bytes of a sound file to samples, within bounds."""

from __future__ import annotations

import base64
import binascii
from io import BytesIO

import soundfile

from cosyvoice_client import Reference
from cosyvoice_client.reference import RATES, resample
from cosyvoice_front.errors import invalid, too_large

MAX_SECONDS = 30.0
MAX_BYTES = 10 << 20
"""Longest recording that the speech tokenizer was made for."""
MAX_CHANNELS = 2
MAX_FILE_RATE = 192_000
"""The highest rate of recorders. With the other two it bounds what a small file can grow to."""


def decode_data(text: str, most_bytes: int, param: str) -> bytes:
    """Bytes of base64, or of a data URL.

    Raises:
        ApiError: it is neither, such as an address, which nothing here fetches; or it holds too much.
    """
    if "://" in text[:16]:
        raise invalid(param, f"{param}: addresses are not fetched; send base64 or a data URL.")
    head, comma, content = text.partition(",")
    if text.startswith("data:") and not (comma and head.endswith(";base64")):
        raise invalid(param, f"{param}: this data URL is not in base64.")
    encoded = content if text.startswith("data:") else text
    if len(encoded) // 4 * 3 > most_bytes + 3:
        raise too_large(f"{most_bytes >> 20} MiB for {param}", param)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(param, f"{param}: this is no base64.") from None


def read_recording(data: bytes, transcript: str, param: str, least_s: float = 0.0) -> Reference:
    """The reference that a sound file (wav, flac, ogg, mp3, ...) holds, mixed to mono.

    What its header says is checked before any of it is decoded, and no more is decoded than it said.

    Raises:
        ApiError: it is no sound file, or not as long as a reference has to be.
    """
    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            _check_header(file, param, least_s)
            channels = file.read(file.frames, dtype="float32", always_2d=True)
            rate = file.samplerate
    except (soundfile.LibsndfileError, TypeError, ValueError):
        raise invalid(param, f"{param}: expected a wav, flac, ogg, mp3 or aiff file.") from None
    _check_seconds(len(channels) / rate, param, least_s)
    new_rate = min(rate, RATES[1])
    return Reference(resample(channels.mean(axis=1), rate, new_rate), transcript, new_rate)


def _check_header(file: soundfile.SoundFile, param: str, least_s: float) -> None:
    if not RATES[0] <= file.samplerate <= MAX_FILE_RATE:
        limit = f"{RATES[0]} to {MAX_FILE_RATE}"
        raise invalid(param, f"{param}: {file.samplerate} samples per second are not {limit}.")
    if file.channels > MAX_CHANNELS:
        raise invalid(param, f"{param}: {file.channels} channels, at most {MAX_CHANNELS}.")
    _check_seconds(file.frames / file.samplerate, param, least_s)


def _check_seconds(seconds: float, param: str, least_s: float) -> None:
    if not least_s <= seconds <= MAX_SECONDS:
        limit = f"{least_s:g} to {MAX_SECONDS:g} s"
        raise invalid(param, f"{param}: it lasts {seconds:.2f} s, expected {limit}.")
