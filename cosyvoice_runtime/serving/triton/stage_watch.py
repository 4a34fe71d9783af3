"""Whether the other models' processes live: Triton leaves a dead one's calls open, and calls it ready."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cosyvoice_runtime.errors import StageLostError, status_of
from cosyvoice_runtime.processes import living

logger = logging.getLogger(__name__)

RETURN_INTERVAL_S = 0.1
"""Time between two looks whether a model is back, which takes seconds."""
ENDING_S = 0.1
"""Longest time from the end of a process's connections to its own."""
T = TypeVar("T")


def find_stub(model: str) -> int | None:
    """Process id of a model of the server that this process belongs to."""
    parent = os.getppid()
    return next((each.pid for each in living() if each.parent == parent and each.model == model), None)


class StageLife:
    """A model's process, up to its end.

    Args:
        ended: called once, when it ends.

    Attributes:
        pid: its process id.

    Raises:
        ProcessLookupError: it has ended already.
        OSError: this machine has no way to watch a process.
    """

    def __init__(self, model: str, pid: int, ended: Callable[[], None]) -> None:
        self.pid = pid
        self._model = model
        self._tell = ended
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._process = os.pidfd_open(pid)
        self._loop.add_reader(self._process, self._end)

    async def outlast(self, answer: asyncio.Future[T], timeout_s: float | None = None) -> T:
        """The answer, which is left alone when it does not come.

        Raises:
            StageLostError: the process ended first.
            TimeoutError: neither happened in time.
        """
        either: set[asyncio.Future[Any]] = {answer, self._ended}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if self._ended.done():
            raise StageLostError(self._model)
        raise TimeoutError

    async def ends_within(self, timeout_s: float) -> bool:
        """Whether it has ended, or does so in this time."""
        await asyncio.wait({self._ended}, timeout=timeout_s)
        return self._ended.done()

    def close(self) -> None:
        """Look no longer."""
        if not self._ended.done():
            self._loop.remove_reader(self._process)
            os.close(self._process)
            self._ended.set_result(None)

    def _end(self) -> None:
        self.close()
        self._tell()


class StageWatch:
    """Tells the callers of other models when one ends, and when it is back. Used in one event loop.

    Args:
        ready: whether the server has a model loaded.
        find: process id of a model, if it runs on this machine; one that is never found is not watched.
    """

    def __init__(self, ready: Callable[[str], Awaitable[bool]], find: Callable[[str], int | None]) -> None:
        self._ready = ready
        self._find = find
        self._looked: set[str] = set()
        self._lives: dict[str, StageLife] = {}
        self._away: dict[str, asyncio.Task[None]] = {}

    def require(self, model: str) -> None:
        """
        Raises:
            StageLostError: it ended and is not back.
        """
        if model in self._away:
            raise StageLostError(model)

    async def life(self, model: str) -> StageLife | None:
        """The process that a call would go to; None if it can't be found.

        Raises:
            StageLostError: it ended and is not back.
        """
        self.require(model)
        if model not in self._looked and not await self._look(model):
            logger.warning("no process of %s is found here: only its silence will tell of its end", model)
        return self._lives.get(model)

    async def back(self, timeout_s: float) -> None:
        """Wait until no model is away.

        Raises:
            StageLostError: one did not come back in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._away:
                    await asyncio.wait(self._away.values())
        except TimeoutError:
            if self._away:  # the last one may be back just now
                raise StageLostError(next(iter(self._away))) from None

    async def explain(self, model: str, error: Exception) -> Exception:
        """Why a call failed: the model's own error, or that the server does not have the model just now."""
        if model not in self._away and not await self._ends_now(model, error) and await self._ready(model):
            return error
        logger.warning("%s can't be called: %s", model, error)
        self._lose(model)
        return StageLostError(model)

    async def _ends_now(self, model: str, error: Exception) -> bool:
        """Whether its process is ending: what was connected to it hears of that a little earlier."""
        life = self._lives.get(model)
        if life is None or status_of(error) != "UNAVAILABLE":
            return False
        # One with a GPU takes seconds to end after its connections; it has no name any more by then.
        return await asyncio.to_thread(self._find, model) != life.pid or await life.ends_within(ENDING_S)

    async def close(self) -> None:
        for life in self._lives.values():
            life.close()
        for task in self._away.values():
            task.cancel()
        await asyncio.gather(*self._away.values(), return_exceptions=True)

    def _lose(self, model: str) -> None:
        if model not in self._away:
            if (life := self._lives.pop(model, None)) is not None:
                life.close()
            logger.warning("%s has ended; its calls are given up", model)
            returning = self._await_return(model, watched=life is not None)
            self._away[model] = asyncio.get_running_loop().create_task(returning)

    async def _await_return(self, model: str, watched: bool) -> None:
        try:
            # Ready alone says nothing: so is a model whose process has just died.
            while not (await self._ready(model) and (await self._look(model) or not watched)):
                await asyncio.sleep(RETURN_INTERVAL_S)
            logger.info("%s is back", model)
        finally:
            del self._away[model]

    async def _look(self, model: str) -> bool:
        """Find the model's process, if it can be found."""
        pid = await asyncio.to_thread(self._find, model)
        self._looked.add(model)
        if pid is None or model in self._lives:
            return model in self._lives
        try:
            self._lives[model] = StageLife(model, pid, lambda: self._lose(model))
        except ProcessLookupError:
            return False
        except OSError as error:  # a kernel or a sandbox without pidfd
            logger.warning("process %d of %s can't be watched: %s", pid, model, error)
            return False
        return True


def answer_of(work: Awaitable[Any]) -> asyncio.Future[Any]:
    """Start work whose failure is nobody's when nobody waits for it any more."""
    answer = asyncio.ensure_future(work)
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return answer
