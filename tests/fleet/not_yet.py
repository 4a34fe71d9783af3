"""Marks of tests that fail until what they hold is built."""

from __future__ import annotations

import pytest

ADDRESSES = "a front knows one address of servers, and gRPC would take the first of several"
REFUSALS = "a full server refuses with a message in a call that ends well, which nobody asks elsewhere"
STOPPING = "a server that is stopping refuses like a full one, and says that the model is being started"
RESUME = "a stream ends with its server"
PIECES = "each piece of a text is a call of its own, which may reach another server"
LOST = "a stream that was lost counts as refused"
VOICES = "voices lie in a folder of one server"
LIMITS = "each front counts for itself"


def not_yet(reason: str) -> pytest.MarkDecorator:
    """The test fails, and is to lose this mark when it passes.

    Args:
        reason: what is missing.
    """
    return pytest.mark.xfail(strict=True, reason=reason)
