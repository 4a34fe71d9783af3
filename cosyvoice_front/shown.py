"""Values in errors."""

from __future__ import annotations

import reprlib

MOST_SHOWN = 80
"""Characters of a wrong value in an error."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = MOST_SHOWN
_short.maxlist = _short.maxdict = 10


def shown(value: object) -> str:
    """A value as an error shows it; of a large one not all is looked at."""
    text = _short.repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
