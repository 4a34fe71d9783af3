"""A websocket from its handshake to its end, whichever protocol it speaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from cosyvoice_front.caller import owner_by_any
from cosyvoice_front.errors import ApiError, GoneError, too_large
from cosyvoice_front.front import Front
from cosyvoice_front.live.session import Session
from cosyvoice_front.live.together import together
from cosyvoice_front.wires.socket import Socket

logger = logging.getLogger(__name__)

NORMAL, POLICY = 1000, 1008
"""Codes of a close (RFC 6455, section 7.4.1): all is said; the client has broken a rule."""
MAX_MESSAGE_BYTES = 128 << 10
"""Largest message that brings no recording."""
BUFFER_DELAY_MS = 3000
"""How long streamed text without an end waits for more, unless the request says so."""


class Wire(Protocol):
    """One protocol on one socket."""

    session: Session

    @property
    def patience_s(self) -> float:
        """Longest wait for the next message while nothing is spoken."""

    def most_bytes(self, message: str | bytes) -> int:
        """How large this message may be."""

    async def take(self, message: str | bytes) -> None:
        """Do what a message says.

        Raises:
            ApiError: it can't be done.
            ClosedError: the client doesn't want more.
        """

    async def refuse(self, error: ApiError) -> None:
        """Tell that a message was refused.

        Raises:
            ClosedError: nothing can come after it.
        """

    async def late(self) -> ClosedError:
        """No message came in time: how the socket is closed."""


class ClosedError(Exception):
    """The socket is to be closed.

    Attributes:
        code: of the close.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


MakeWire = Callable[[WebSocket, Front, str, Socket], Wire]


async def serve(websocket: WebSocket, front: Front, make_wire: MakeWire) -> None:
    """Serve a WebSocket from its handshake to its end.

    Args:
        websocket: the socket, not yet accepted.
        front: what serves it.
        make_wire: makes its protocol, or raises an ApiError for a handshake that can't be served.
    """
    socket = Socket(websocket, front.settings.front.stalled_client_timeout_s)
    try:
        owner = owner_by_any(front, websocket)
        wire = make_wire(websocket, front, owner, socket)
    except ApiError as error:
        await websocket.send_denial_response(
            JSONResponse(error.body(), error.status, error.headers(websocket.headers))
        )
        return
    await websocket.accept(headers=[(b"x-ai-generated", b"true")])
    try:
        async with wire.session:
            await together(_talk(socket, wire), socket.stalled())
    except GoneError as error:
        logger.info("the client has left: %s", error)
    except ClosedError as error:
        await socket.close(error.code, str(error))


async def _talk(socket: Socket, wire: Wire) -> None:
    while True:
        try:
            message = await _next(socket, wire)
            limit = wire.most_bytes(message)
            if len(message) > limit or len(_bytes(message)) > limit:
                raise too_large(f"{limit >> 10} KiB a message")
            await wire.take(message)
        except ApiError as error:
            await wire.refuse(error)


async def _next(socket: Socket, wire: Wire) -> str | bytes:
    """The next message; while something is spoken, it may take any time."""
    while True:
        try:
            return await socket.receive(wire.patience_s)
        except TimeoutError:
            if wire.session.idle_s >= wire.patience_s:
                raise await wire.late() from None


def _bytes(message: str | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.encode("utf-8", "surrogatepass")
