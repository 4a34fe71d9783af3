"""The client's side of a gRPC call."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import grpc

from cosyvoice_runtime.errors import ClientGoneError
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.slow_reader import SlowReaderTimeout

_PARENTS: WeakKeyDictionary[asyncio.Task[Any], ref[asyncio.Task[Any]]] = WeakKeyDictionary()


def note_parents(loop: asyncio.AbstractEventLoop) -> None:
    """Record the parents of all tasks that a loop starts from now on."""
    loop.set_task_factory(_task)


def parent_of(task: asyncio.Task[Any]) -> asyncio.Task[Any] | None:
    """The task in which another task was started; None if there was none, or it is gone."""
    parent = _PARENTS.get(task)
    return None if parent is None else parent()


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    if parent := asyncio.current_task(loop):
        _PARENTS[task] = ref(parent)
    return task


class ClientCall:
    """Reads from and writes to one client; made in the task that answers the call.

    A client that takes nothing can't be told so: a status comes after what it has not read. gRPC has a way to
    reset such a call, which frees all that it holds, but not for servers in asyncio. They do it when they
    drop a call. Two tasks hold it: the one that answers, and its parent, which waits for the client to
    leave; when both are cancelled, the call is reset. (The server keeps its first and its latest call all
    the same, the latest until the next one comes.)

    Args:
        context: the context of the call, from gRPC.
        stalled_timeout_s: longest time in which the client may read nothing.
    """

    def __init__(self, context: Any, stalled_timeout_s: float) -> None:
        self._context = context
        # The callback must not hold the context: the reference cycle would wait for the garbage collector.
        answering = cast("asyncio.Task[None]", asyncio.current_task())
        self._timeout = SlowReaderTimeout(stalled_timeout_s, context.peer(), partial(_reset, answering))
        self._writing = asyncio.Lock()

    async def read(self, within_s: float | None = None) -> bytes | None:
        """The client's next message; None after its last one.

        Args:
            within_s: longest wait; None waits without a limit.

        Raises:
            RefusedError: no message came in time.
        """
        try:
            async with asyncio.timeout(within_s):
                message = await self._context.read()
        except TimeoutError:
            text = f"message: none came within {within_s:g} s, the limit"
            raise RefusedError("DEADLINE_EXCEEDED", text) from None
        return None if message is grpc.aio.EOF else bytes(message)

    async def write(self, message: bytes) -> None:
        """Send a message, and return when the client has taken it; a stalled client cancels this task.

        Raises:
            ClientGoneError: it has left.
        """
        async with self._writing:
            with self._timeout.during(len(message)):
                try:
                    await self._context.write(message)
                except grpc.aio.InternalError as error:
                    raise ClientGoneError from error


def _reset(task: asyncio.Task[Any]) -> None:
    if parent := parent_of(task):
        parent.cancel()
    task.cancel()
