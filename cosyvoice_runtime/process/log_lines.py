"""Log lines that data from clients can't forge."""

from __future__ import annotations

import logging
import re

STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, Unicode line ends, and marks that change the direction of writing."""
INSIDE = "  | "
"""The prefix of a record's further lines, such as those of tracebacks."""


class OneLine(logging.Formatter):
    """Escapes line ends and other control characters; tracebacks are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - as logging calls it
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(INSIDE + _escaped(line) for line in lines)


def log_lines(level: int | str, form: str, *filters: logging.Filter, force: bool = False) -> None:
    """Send the log to standard error.

    Args:
        level: the lowest level that is written.
        form: the format of a line, as ``logging`` takes it.
        force: whether existing handlers are replaced.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(form))
    for each in filters:
        handler.addFilter(each)
    logging.basicConfig(level=level, handlers=[handler], force=force)


def _escaped(text: str) -> str:
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
