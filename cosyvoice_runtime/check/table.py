"""Findings as one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HEADINGS = "stage", "precision", "found", "limit", ""


class Row(NamedTuple):
    """
    Attributes:
        wrong: why it is not as it should be; empty when it is.
    """

    stage: str
    precision: str
    found: str
    limit: str = ""
    wrong: str = ""


def table(rows: Sequence[Row]) -> str:
    """Lines of Markdown, readable as they are."""
    cells = [HEADINGS, *((*row[:4], "WRONG" if row.wrong else "ok") for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (cells[0], rule, *cells[1:])
    )
