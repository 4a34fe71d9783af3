"""The decompression of HTTP bodies."""

from __future__ import annotations

import zlib

from cosyvoice_runtime.gateway.policy import RefusedError, invalid

ENCODINGS = ("gzip", "deflate")
"""The encodings that Triton's clients use."""
AS_IT_IS = "identity"
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
BARE_WINDOW_BITS = -zlib.MAX_WBITS
"""The window of ``deflate`` without a zlib header, as some clients send it."""
ZLIB_METHOD = 8
"""The lower half of a zlib stream's first byte."""


def encoding_of(headers: list[str]) -> str | None:
    """The encoding of a body by its ``Content-Encoding`` headers; None if it is not compressed.

    Raises:
        RefusedError: the encoding is unknown, or there is more than one.
    """
    said = ",".join(headers).strip().lower()
    if said in ("", AS_IT_IS):
        return None
    if said not in ENCODINGS:
        raise invalid("Content-Encoding", said, f"one of {', '.join((AS_IT_IS, *ENCODINGS))} is expected")
    return said


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body in the memory and time of ``limit`` bytes, holding Python's lock briefly.

    Raises:
        RefusedError: the body is larger, damaged or incomplete.
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
