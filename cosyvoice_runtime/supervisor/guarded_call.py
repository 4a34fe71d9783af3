"""Calls that end when their answer can't come, or is not wanted, any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Check = Callable[[], None]
"""Called again and again while waiting; raises when waiting makes no sense any more."""

CHECK_INTERVAL_S = 0.1


def keep_waiting() -> None:
    """The check of a call that only its timeout ends."""


@contextmanager
def guarded(check: Check, end_call: Callable[[], object]) -> Iterator[None]:
    """Watch over the call that the block makes.

    The timeout of a socket is not enough: the processes of the models inherit the server's sockets, so that a
    call stays open after the server has died.

    Args:
        check: when it raises, the call is ended, and the block raises that error instead of the call's own.
        end_call: makes the call return or raise at once; called from another thread.
    """
    over = threading.Event()
    reasons: list[Exception] = []

    def watch() -> None:
        while not over.wait(CHECK_INTERVAL_S):
            try:
                check()
            except Exception as reason:
                reasons.append(reason)
                end_call()
                return

    watcher = threading.Thread(target=watch, name="call guard", daemon=True)
    watcher.start()
    try:
        yield
    except Exception:
        if reasons:
            raise reasons[0] from None
        raise
    finally:
        over.set()
        watcher.join()
