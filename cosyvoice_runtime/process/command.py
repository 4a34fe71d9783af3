"""Commands that say what is missing where their packages are not all installed."""

from __future__ import annotations

import sys
from importlib import import_module


def run_command(package: str, needed: str) -> int:
    """Run ``main`` of a package's module ``command``; returns its exit status, or 2 without what it imports.

    Args:
        needed: how to install it.
    """
    try:
        command = import_module(f"{package}.command")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cosyvoice"):
            raise
        print(f"{package}: the module {error.name} is not installed: {needed}", file=sys.stderr)
        return 2
    return int(command.main())
