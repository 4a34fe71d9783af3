"""JSON files of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cosyvoice_runtime.errors import CheckpointError, shorten


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; a CheckpointError tells that it holds no object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {shorten(content)}")
    return content
