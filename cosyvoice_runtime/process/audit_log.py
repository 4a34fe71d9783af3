"""The audit log: a line for each request with client, time and ending, without texts and keys."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any

from cosyvoice_runtime.errors import InvalidInput

logger = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
OK, REFUSED, ERROR, LEFT = "ok", "refused", "error", "client_left"
"""The endings of a request: answered; refused; failed by a fault of the server; cancelled by its client."""


class AuditLog:
    """Writes lines of JSON, each at once and in one piece, so that processes may share the file.

    A file that was renamed, as log rotation does, is made anew. A line that can't be written is told to the
    process's own log, and the request is served all the same.

    Args:
        path: path of the file; ``-`` is standard output, and an empty path turns the log off.
        setting: name of the setting that holds the path.

    Raises:
        InvalidInput: the file can't be written.
    """

    def __init__(self, path: str, setting: str) -> None:
        try:
            self._handler = _handler(path)
        except OSError as error:
            raise InvalidInput(setting, path, f"a file that can be written ({error})") from error

    @property
    def on(self) -> bool:
        """Whether the log is turned on."""
        return self._handler is not None

    def write(self, **fields: Any) -> None:
        """Write a line that begins with the present time (UTC)."""
        if self._handler is not None:
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._handler.handle(logging.makeLogRecord({"msg": json.dumps({"time": time, **fields})}))


class _FileHandler(WatchedFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        _tell_loss(record)


class _OutputHandler(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        _tell_loss(record)


def _handler(path: str) -> logging.Handler | None:
    if not path:
        return None
    return _OutputHandler(sys.stdout) if path == STANDARD_OUTPUT else _FileHandler(path, encoding="ascii")


def _tell_loss(record: logging.LogRecord) -> None:
    logger.error("a line of the audit log is lost: %s: %s", sys.exc_info()[1], record.msg)
