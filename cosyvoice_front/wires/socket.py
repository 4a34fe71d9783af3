"""One client's websocket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyvoice_front.errors import GoneError
from cosyvoice_front.live.together import cancelled

logger = logging.getLogger(__name__)


class Socket:
    """Messages in both directions, each way in order.

    Args:
        stall_s: longest time that a message may stay unread.
    """

    def __init__(self, websocket: WebSocket, stall_s: float) -> None:
        self._websocket = websocket
        self._stall_s = stall_s
        self._sending = asyncio.Lock()
        self._stalled = asyncio.Event()

    async def receive(self, timeout_s: float | None = None) -> str | bytes:
        """Receive a message.

        Raises:
            TimeoutError: nothing came in time.
            GoneError: the client has closed, or was lost.
        """
        async with asyncio.timeout(timeout_s):
            message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise GoneError(f"closed with {message.get('code')}")
        text = message.get("text")
        return message["bytes"] if text is None else text

    async def send(self, message: str | bytes) -> None:
        """Send; it waits while the client doesn't read.

        Raises:
            GoneError: the client has closed, was lost, or didn't read for too long.
        """
        try:
            async with asyncio.timeout(self._stall_s), self._sending:
                await self._send(message)
        except TimeoutError:
            self._stalled.set()
            raise GoneError(f"nothing was read for {self._stall_s:g} s") from None
        except (WebSocketDisconnect, RuntimeError) as error:
            raise GoneError("closed") from error

    async def heard(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work while somebody is there to hear; messages that come meanwhile say nothing.

        Raises:
            GoneError: the client has left.
        """
        tasks = working, leaving = asyncio.create_task(work), asyncio.create_task(self._left())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            (working if working.done() else leaving).result()
        finally:
            await cancelled(*tasks)

    async def _left(self) -> None:
        while True:
            await self.receive()

    async def stalled(self) -> None:
        """Wait until the client doesn't read any more, and raise a GoneError."""
        await self._stalled.wait()
        raise GoneError(f"nothing was read for {self._stall_s:g} s")

    async def close(self, code: int, reason: str) -> None:
        """Close it from this side."""
        try:
            async with asyncio.timeout(self._stall_s):
                await self._websocket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            logger.info("closed already")

    async def _send(self, message: str | bytes) -> None:
        if isinstance(message, str):
            await self._websocket.send_text(message)
        else:
            await self._websocket.send_bytes(message)
