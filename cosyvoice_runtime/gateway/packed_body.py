"""Bodies of HTTP that come compressed."""

from __future__ import annotations

import zlib

from cosyvoice_runtime.gateway.policy import RefusedError, invalid

ENCODINGS = ("gzip", "deflate")
"""That clients of Triton send."""
AS_IT_IS = "identity"
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
BARE_WINDOW_BITS = -zlib.MAX_WBITS
"""Of ``deflate`` without zlib's two bytes in front, as some clients send it."""
ZLIB_METHOD = 8
"""In the lower half of zlib's first byte."""


def encoding_of(headers: list[str]) -> str | None:
    """How a body is compressed, by all its headers ``Content-Encoding``; None if it is not.

    Raises:
        RefusedError: in a way that is not unpacked here, or more than once.
    """
    said = ",".join(headers).strip().lower()
    if said in ("", AS_IT_IS):
        return None
    if said not in ENCODINGS:
        raise invalid("Content-Encoding", said, f"one of {', '.join((AS_IT_IS, *ENCODINGS))} is expected")
    return said


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """Takes no more memory and time than ``limit`` bytes do, and Python's lock only for a moment.

    Raises:
        RefusedError: the body is larger, or not one whole piece in its encoding.
    """
    bare = encoding == "deflate" and body[:1] and body[0] & 15 != ZLIB_METHOD
    unpacking = zlib.decompressobj(BARE_WINDOW_BITS if bare else WINDOW_BITS[encoding])
    try:
        unpacked = unpacking.decompress(body, limit + 1)
    except zlib.error as error:
        raise _broken(str(error)) from None
    if len(unpacked) > limit:
        raise RefusedError("RESOURCE_EXHAUSTED", f"body: larger than {limit} bytes, the limit")
    if not unpacking.eof:
        raise _broken("incomplete")
    if unpacking.unused_data:
        raise _broken(f"{len(unpacking.unused_data)} bytes after its end")
    return unpacked


def _broken(reason: str) -> RefusedError:
    return invalid("body", reason, "one whole body in its encoding is expected")
