"""Blocking calls that may never return, for code in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """Run a call in a daemon thread, for which neither the loop nor the process waits at its end.

    Raises:
        Exception: the call raised it.
    """
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # The awaiting task may be cancelled, but the call goes on.
    Thread(target=_fulfil, args=(result, call), daemon=True).start()
    return await asyncio.wrap_future(result)


def _fulfil(result: Future[T], call: Callable[[], T]) -> None:
    try:
        value = call()
    except Exception as error:
        result.set_exception(error)
    # An exception such as SystemExit must not end the awaiting task's process.
    except BaseException as error:
        result.set_exception(RuntimeError(f"the call ended with {error!r}"))
    else:
        result.set_result(value)
