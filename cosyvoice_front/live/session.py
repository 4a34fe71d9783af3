"""All contexts of one listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cosyvoice_front import audit, request_id
from cosyvoice_front.errors import ApiError, GoneError, broken, rate_limited, too_large
from cosyvoice_front.front import Front
from cosyvoice_front.live.context import Context
from cosyvoice_front.live.happenings import Audio, Cancelled, Failed, Happening, Tell
from cosyvoice_front.live.manner import Manner
from cosyvoice_front.live.together import cancelled, ended

logger = logging.getLogger(__name__)

MAX_CONTEXTS = 32
"""Texts that a websocket speaks at once, or that wait to be spoken."""
MAX_WAITING_KIB = 256
"""Most text of a websocket that waits to be spoken."""
TellOf = Callable[[str, Happening], Awaitable[None]]


class Session:
    """Contexts by name, each in a task of its own. Leaving it ends all of them.

    Args:
        owner: whose limits count.
        tell: takes what happens to the context of a name. Raises :class:`GoneError` when nobody listens.
        in_turn: whether a context begins to speak only when those before it have ended.
    """

    def __init__(self, front: Front, owner: str, tell: TellOf, *, in_turn: bool = False) -> None:
        self._front = front
        self._owner = owner
        self._tell = tell
        self._in_turn = in_turn
        self._contexts: dict[str, Context] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._opened = 0
        self._is_left = False
        self._busy_until = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await cancelled(*self._tasks.values(), *self._leaving)

    @property
    def names(self) -> list[str]:
        """Of contexts that have not ended, the oldest first."""
        return list(self._contexts)

    @property
    def idle_s(self) -> float:
        """Time without a context."""
        return 0.0 if self._contexts else asyncio.get_running_loop().time() - self._busy_until

    def get(self, name: str) -> Context | None:
        """The context, unless it has ended."""
        return self._contexts.get(name)

    def open(self, name: str, manner: Manner) -> Context:
        """Open a context; an ApiError tells that too many are open."""
        if len(self._contexts) >= MAX_CONTEXTS:
            message = f"{len(self._contexts)} contexts are open, the limit."
            raise rate_limited(message)

        async def tell(happening: Happening) -> None:
            # The end of audio that is cut comes when the context is forgotten already.
            if self._contexts.get(name) is context or isinstance(happening, Audio):
                await self._tell(name, happening)

        self._opened += 1
        context = Context(self._front, self._owner, manner, tell)
        before = list(self._tasks.values()) if self._in_turn else []
        self._contexts[name] = context
        task = asyncio.create_task(self._run(name, context, tell, before, self._opened))
        task.add_done_callback(lambda _task: context.close())
        self._tasks[name] = task
        return context

    def push(self, context: Context, text: str) -> None:
        """More text of a context.

        Raises:
            ApiError: more text waits than may.
        """
        waiting = sum(other.unspoken_bytes for other in self._contexts.values())
        if waiting + len(text.encode("utf-8", "surrogatepass")) > MAX_WAITING_KIB << 10:
            raise too_large(f"{MAX_WAITING_KIB} KiB of text that waits to be spoken")
        context.push(text)

    async def cancel(self, name: str) -> bool:
        """End a context: nothing of it is told any more but the end of its audio, and that. False if it has
        ended."""
        return await self._end(name, Cancelled())

    async def fail(self, name: str, error: ApiError) -> bool:
        """End a context by an error of its text. False if it has ended."""
        return await self._end(name, Failed(error))

    async def finish(self) -> None:
        """Cancel the contexts whose text has not ended, and wait until the others have been spoken."""
        for name, context in list(self._contexts.items()):
            if not context.is_ended:
                await self.cancel(name)
        await ended(list(self._tasks.values()))

    async def _end(self, name: str, happening: Cancelled | Failed) -> bool:
        """The utterance ends on the server meanwhile: other contexts don't wait for that."""
        task = self._tasks.get(name)
        if task is None:
            return False
        if isinstance(happening, Failed):
            self._contexts[name].entry.refuse(happening.error)
        context = self._contexts[name]
        self._remove(name)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        try:
            await context.cut()
        finally:
            task.cancel()
        await self._tell(name, happening)
        return True

    async def _run(
        self, name: str, context: Context, tell: Tell, before: list[asyncio.Task[None]], number: int
    ) -> None:
        request_id.current.set(f"{request_id.current.get()}-{number}")
        audit.enter(context.entry)
        try:
            with context.entry.noting_failure():
                await ended(before)
                if not self._is_left:
                    await context.run()
        except ApiError as error:
            await _tell_failure(context, tell, error)
        except GoneError:
            logger.info("nobody listens any more")
            self._is_left = True
        except Exception:
            logger.exception("a context failed")
            await _tell_failure(context, tell, broken())
        finally:
            context.entry.write(self._front.audit)
            if self._contexts.get(name) is context:
                self._remove(name)

    def _remove(self, name: str) -> None:
        self._contexts.pop(name, None)
        self._tasks.pop(name, None)
        self._busy_until = asyncio.get_running_loop().time()


async def _tell_failure(context: Context, tell: Tell, error: ApiError) -> None:
    logger.info("refused: %s", error)
    with suppress(GoneError):
        try:
            await context.cut()
        finally:
            await tell(Failed(error))
