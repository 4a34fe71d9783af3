"""Marks of tests that fail until what they hold is built."""

from __future__ import annotations

import pytest

VOICES = "voices lie in a folder of one server"


def not_yet(reason: str) -> pytest.MarkDecorator:
    """The test fails, and is to lose this mark when it passes.

    Args:
        reason: what is missing.
    """
    return pytest.mark.xfail(strict=True, reason=reason)
