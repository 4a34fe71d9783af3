"""Importing what may not be there, or not work."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Attempt(NamedTuple):
    """
    Attributes:
        module: None where it can't be imported.
        failure: why; empty where it can.
    """

    module: Any
    failure: str


def attempt(name: str) -> Attempt:
    """Import a module that loads native libraries, which fail in ways of their own."""
    try:
        return Attempt(importlib.import_module(name), "")
    except Exception as error:
        return Attempt(None, f"{name} can't be imported ({type(error).__name__}: {error})")
