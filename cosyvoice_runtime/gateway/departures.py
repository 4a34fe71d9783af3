"""Calls whose clients have left, read until their end.

tritonserver 2.51 may abort, for all clients, when a stream is cancelled just as it begins or ends: its thread
then locks a mutex of what it has freed. So no call to an entry model is cancelled. The models are told in a
request of their own to stop, and what still comes of the call is read and thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

import grpc

logger = logging.getLogger(__name__)

PROCESSED_S = 0.1
"""The time in which tritonserver passes a request to its model; an earlier cancel may crash the server."""
STOP_AGAIN_S = 0.5
"""The time after which a model is told again: the first message may have overtaken its request."""


class Departures:
    """Stops and drains the calls of clients that have left.

    Args:
        stop: tells a model, by its name in the protocol, that the client of a call has left.
    """

    def __init__(self, stop: Callable[[str, str], Awaitable[None]]) -> None:
        self._stop = stop
        self._tasks: set[asyncio.Task[None]] = set()

    def see_off(self, call_id: str, asked: Collection[str], ending: Coroutine[Any, Any, object]) -> None:
        """Tell the models of a call to stop, and read the call to its end by ``ending``."""
        self._keep(asyncio.create_task(self._see_off(call_id, asked, ending)))

    def read_out(self, ending: Coroutine[Any, Any, object]) -> None:
        """Read a call to its end by ``ending``, which comes without more."""
        self._keep(asyncio.create_task(_to_its_end(ending)))

    def cancel(self, call: Any, ending: Coroutine[Any, Any, object]) -> None:
        """Cancel a call to a model that can't be told to stop, at the risk of a crash."""
        self._keep(asyncio.create_task(_cancel(call, ending)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def over(self, timeout_s: float) -> None:
        """Wait for the calls that are still being drained."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _see_off(
        self, call_id: str, asked: Collection[str], ending: Coroutine[Any, Any, object]
    ) -> None:
        end = asyncio.create_task(ending)
        while not end.done():
            stops = [self._stop(name, call_id) for name in asked]
            await asyncio.gather(*stops, return_exceptions=True)
            await asyncio.wait([end], timeout=STOP_AGAIN_S)
        if error := end.exception():
            logger.debug("the end of a call that its client has left: %s", error)


async def _to_its_end(ending: Coroutine[Any, Any, object]) -> None:
    with suppress(grpc.RpcError):
        await ending


async def _cancel(call: Any, ending: Coroutine[Any, Any, object]) -> None:
    await asyncio.sleep(PROCESSED_S)
    call.cancel()
    with suppress(asyncio.CancelledError, asyncio.InvalidStateError, grpc.RpcError):
        await ending
