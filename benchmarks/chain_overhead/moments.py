"""Moments that a model notes while the chain is measured."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

DIRECTORY_VARIABLE = "CHAIN_TRACE_DIR"


def note(model: str, **record: Any) -> None:
    """Add a line to the model's file; one write, so lines of several threads don't mix."""
    path = Path(os.environ[DIRECTORY_VARIABLE]) / f"{model}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def now() -> float:
    """Seconds on the clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
