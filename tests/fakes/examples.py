"""How many examples of a property a run tries."""

from __future__ import annotations

from hypothesis import settings

FRESH = "fresh"
"""The profile of tests/conftest.py with which each run draws new examples."""


def examples(suite: int, fresh: int) -> int:
    """``suite`` of them, the same ones in every run, unless the profile asks for fresh ones."""
    return fresh if settings.get_current_profile_name() == FRESH else suite
