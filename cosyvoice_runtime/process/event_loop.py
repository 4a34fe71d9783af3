"""Event loops with threads: a loop in its own thread, calls into loops, and blocking calls from them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


class LoopCalls:
    """Runs functions in an event loop for other threads, all that are pending in one wake-up.

    It is made in that loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = False

    def add(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function soon, in order; a loop that has ended calls nothing."""
        self._waiting.append(partial(function, *arguments))
        if not self._woken:  # A wake-up that is already scheduled finds the new call.
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._woken = False
        while self._waiting:
            call = self._waiting.popleft()
            try:
                call()
            except Exception:  # An error must not keep the later calls from running.
                logger.exception("a call in the event loop failed")


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


POOL_THREADS = 4
"""The threads for blocking work (text, voices, tensors); more of them would only share the cores."""


class EventLoopThread:
    """Runs coroutines in a thread of this name, until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(POOL_THREADS, thread_name_prefix=f"{name} pool"))
        self._ending = self._closing = False
        self._lock = threading.RLock()  # The garbage collector may close an iteration in this thread.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine without waiting; cancelling the future cancels it.

        Raises:
            RuntimeError: the loop is closing or closed.
        """
        with self._lock:
            if self._closing:
                work.close()
                raise RuntimeError("the event loop is closed")
            return self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine's result; an interrupted wait cancels the coroutine."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Iterate over an asynchronous generator, which is closed when the iteration is abandoned."""
        steps = _Steps(items)
        try:
            while True:
                try:
                    yield self.run(steps.next())
                except StopAsyncIteration:
                    return
        finally:
            self.run(steps.close())

    def close(self) -> None:
        """Cancel all tasks, wait for their cleanup, and end the thread; a second call does nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._begin(_cancel_others()).result()
        self._begin(self._loop.shutdown_default_executor()).result()
        self._ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        while not self._ending:
            with suppress(SystemExit, KeyboardInterrupt):  # The future of a task reports these.
                self._loop.run_forever()


class _Steps(Generic[T]):
    """The steps of an asynchronous generator."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._latest: asyncio.Task[Any] | None = None

    async def next(self) -> T:
        self._latest = asyncio.current_task()
        return await anext(self._items)

    async def close(self) -> None:
        """Cancel a step that still runs because its waiting thread was interrupted, then close the
        generator."""
        if self._latest is not None:
            if not self._latest.cancelling():  # A second cancellation would interrupt its cleanup.
                self._latest.cancel()
            await asyncio.wait({self._latest})
        await self._items.aclose()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
