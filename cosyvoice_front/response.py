"""An answer that is sent while it is made, and given up when its reader leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

logger = logging.getLogger(__name__)


class StreamedResponse(Response):
    """Status and headers leave with the first piece, so that a failure before it has a status of its own.

    A failure after it ends the connection without the mark of a whole body. When the client leaves, or
    leaves pieces unread for too long, the generator is closed at once.

    Args:
        pieces: of the body, none of them empty.
        stall_s: longest time that a piece may stay unread.
        later_headers: those that are known with the first piece.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        headers: dict[str, str],
        media_type: str,
        stall_s: float,
        later_headers: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._pieces = pieces
        self._later_headers = later_headers
        self._stall_s = stall_s
        self.status_code = 200
        self.background = None
        self.init_headers({**headers, "content-type": media_type})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await while_connected(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        started = False
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    if not started:
                        await send(self._start())
                        started = True
                    async with asyncio.timeout(self._stall_s):
                        await send(_body(piece, more=True))
            async with asyncio.timeout(self._stall_s):
                if not started:
                    await send(self._start())
                await send(_body(b"", more=False))
        except Exception as error:
            if not started:
                raise
            # Without the end of the body uvicorn closes the connection, which tells the client.
            logger.warning("given up after the first audio: %s", str(error) or type(error).__name__)

    def _start(self) -> dict[str, Any]:
        later = [(name.lower().encode(), value.encode()) for name, value in self._later_headers().items()]
        headers = [*self.raw_headers, *later]
        return {"type": "http.response.start", "status": self.status_code, "headers": headers}


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; cancel it when the client leaves, or with the caller."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        else:
            logger.info("the client has left")
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _body(piece: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": more}
