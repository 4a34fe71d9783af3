"""Names in front of log lines, for work of the same kind that several threads do side by side."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context

_NAME: ContextVar[str] = ContextVar("name", default="")


class NamedLog(logging.Filter):
    """Puts the name of the thread's work in front of what it logs, if the work has a name."""

    def filter(self, record: logging.LogRecord) -> bool:
        if name := _NAME.get():
            record.msg = f"{name}: {record.msg}"
        return True


@contextmanager
def named(name: str) -> Iterator[None]:
    """Name what this thread logs, and what threads log that it makes by :func:`named_thread`."""
    token = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(token)


def named_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """A thread that ends with the process, and logs under the name that the present one has."""
    return threading.Thread(target=copy_context().run, args=[work], name=name, daemon=True)
