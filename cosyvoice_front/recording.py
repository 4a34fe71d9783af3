"""Recordings of a voice that somebody sent: bytes of a sound file to samples, within bounds."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace

from cosyvoice_client import InvalidArgumentError, Reference, read_reference
from cosyvoice_client.reference import LEAST_S, RATES, resample
from cosyvoice_front.errors import invalid, too_large

MAX_BYTES = 10 << 20
"""Largest file of a recording."""


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


def read_recording(data: bytes, transcript: str, param: str, least_s: float = LEAST_S) -> Reference:
    """The reference that a sound file holds, mixed to mono, without the silence at its ends.

    Raises:
        ApiError: it can't be read, or is not as long as a reference has to be.
    """
    try:
        reference = read_reference(data, transcript, None, name=param, least_s=least_s)
    except InvalidArgumentError as error:
        raise invalid(param, f"{error}.") from None
    rate = min(reference.rate, RATES[1])
    return replace(reference, samples=resample(reference.samples, reference.rate, rate), rate=rate)
