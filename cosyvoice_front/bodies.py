"""Bodies of requests: how large they may be, and how long they may take to come."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyvoice_front.errors import ApiError, invalid, timed_out, too_large


class BodyLimits:
    """Raises an ApiError out of ``receive`` when a body becomes too large or takes too long."""

    def __init__(self, app: ASGIApp, most_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            receive = self._limited(receive, declared_length(scope))
        await self._app(scope, receive, send)

    def _limited(self, receive: Receive, declared: int) -> Receive:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        read, whole = 0, False

        async def limited() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()
            if declared > self._most_bytes:
                raise self._too_large()
            message = await _before(deadline, receive)
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > self._most_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> ApiError:
        return too_large(f"{self._most_bytes >> 20} MiB")


def declared_length(scope: Scope) -> int:
    """The number of ``Content-Length``; 0 without."""
    text = Headers(scope=scope).get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise invalid(None, "Content-Length is no number.")
    return int(text)


async def _before(deadline: float, receive: Receive) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        raise timed_out("The body of the request did not come in time.") from None
