"""When a refused client is told to come back."""

from __future__ import annotations

from starlette.datastructures import Headers

COUNT = "x-stainless-retry-count"
"""Header by which the packages of OpenAI and Cartesia say how often they have come back."""
LEAST_MS = (3000, 7000)
"""At the first refusal, and at each later one: together the ten seconds within which most places become free.

These packages come back twice. The server tells whoever is next to come back within tenths of a second, and
both retries would be over before anybody has finished.
"""


def retry_after_ms(told_ms: int, headers: Headers) -> int:
    """Return the time after which a refused client comes back, which grows with its attempts.

    Args:
        told_ms: time of the server or the limit that refuses.
        headers: those of the request.
    """
    if (count := headers.get(COUNT)) is None:
        return told_ms
    least_ms = LEAST_MS[0 if count == "0" else 1]
    # What the server told keeps those apart who were refused together.
    return told_ms if told_ms >= least_ms else least_ms + told_ms
