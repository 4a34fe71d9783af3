"""Calls that may never return, for code in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """The result of a call in a thread that neither the end of the loop nor that of the process waits for.

    Raises:
        Exception: the call did.
    """
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # whoever waits may leave, the call goes on
    Thread(target=_fulfil, args=(result, call), daemon=True).start()
    return await asyncio.wrap_future(result)


def _fulfil(result: Future[T], call: Callable[[], T]) -> None:
    try:
        value = call()
    except Exception as error:
        result.set_exception(error)
    except BaseException as error:  # such as SystemExit, which is not that of whoever waits
        result.set_exception(RuntimeError(f"the call ended with {error!r}"))
    else:
        result.set_result(value)
