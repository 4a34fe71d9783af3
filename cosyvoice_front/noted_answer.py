"""An answer on its way, with the status that it has."""

from __future__ import annotations

from starlette.types import Message, Send

STATUS_TYPES = ("http.response.start", "websocket.accept", "websocket.http.response.start")
"""Messages of ASGI that say how a request ends."""


class NotedAnswer:
    """Passes an answer on to ``send``.

    Attributes:
        status: its status of HTTP, 101 for a websocket that was accepted; 0 before it begins.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] in STATUS_TYPES:
            self.status = message.get("status", 101)
        await self._send(message)
