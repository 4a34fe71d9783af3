"""Lines of a log that nobody forges by what he sends."""

from __future__ import annotations

import logging
import re

STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, line ends of Unicode, and those that turn the direction of writing."""
INSIDE = "  | "
"""Before each further line of a record, as tracebacks have."""


class OneLine(logging.Formatter):
    """Shows line ends and other characters that steer a terminal as escapes; tracebacks are set in."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - as logging calls it
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(INSIDE + _escaped(line) for line in lines)


def log_lines(level: int | str, form: str, *filters: logging.Filter, force: bool = False) -> None:
    """Log to standard error.

    Args:
        level: least severe messages that are written.
        form: of a line, as ``logging`` takes it.
        force: in place of whatever logs already.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(form))
    for each in filters:
        handler.addFilter(each)
    logging.basicConfig(level=level, handlers=[handler], force=force)


def _escaped(text: str) -> str:
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
