"""Scripts: files with the turns of several speakers."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from cosyvoice_client.errors import InvalidArgumentError

HELP = (
    "file of turns, spoken as one answer: lines 'VOICE: TEXT', or a JSON list of {voice, text, instructions}"
)
REMARK = "#"
_LINE = re.compile(r"([^:：]+)[:：]\s*(.+)")
"""Finds voice and text; the colon of a Chinese script is full-width."""


def add_script(group: argparse._ActionsContainer, pauses: argparse._ActionsContainer) -> None:
    """Options of a script and of the silence between its turns.

    Args:
        group: in which the script takes the place of a text.
    """
    group.add_argument("--script", type=Path, metavar="FILE", help=HELP)
    pauses.add_argument(
        "--turn-pause",
        dest="turn_pause_s",
        type=float,
        metavar="S",
        help="silence between two turns of a script, 0 to 3 s (default 0.3)",
    )


def read_script(path: Path) -> Any:
    """The turns of a script, as ``turns`` of a request has them; what JSON holds is not checked.

    Raises:
        InvalidArgumentError: it can't be read, or holds a line that is no turn.
    """
    try:
        written = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentError(f"--script: {path} is no file of turns ({error})") from error
    if not written.lstrip().startswith("["):
        return _turns(path, written)
    try:
        return json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"--script: {path} is no JSON ({error})") from error


def said(turns: Any) -> str:
    """All texts of turns, each a paragraph; what is no turn says nothing."""
    texts = [turn.get("text") for turn in turns or () if isinstance(turn, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _turns(path: Path, written: str) -> list[dict[str, str]]:
    turns = []
    for number, line in enumerate(written.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(REMARK):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise InvalidArgumentError(f"--script: {path}, line {number}: VOICE: TEXT is expected")
        turns.append({"voice": found[1].strip(), "text": found[2]})
    if not turns:
        raise InvalidArgumentError(f"--script: {path} has no turn")
    return turns
