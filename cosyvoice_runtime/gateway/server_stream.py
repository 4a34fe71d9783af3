"""The server's side of a gRPC stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

import grpc

from cosyvoice_runtime.gateway.limits import PendingBytes


class Admitted(NamedTuple):
    """An admitted request.

    Attributes:
        size: bytes that count as pending.
        models: models that it calls; empty if it is not an inference.
    """

    size: int
    models: frozenset[str]


class ServerStream:
    """One gRPC stream to the server. gRPC cancels a call whose reader or writer is cancelled, so separate
    tasks read and write.

    It knows nothing of the client, who may be gone long before it is over.

    Args:
        call: the gRPC call to the server.
        pending: counts requests until the server has begun to answer.

    Attributes:
        models: models that were called.
    """

    def __init__(self, call: Any, pending: PendingBytes) -> None:
        self._call = call
        self._pending = pending
        self._taken = 0
        self._reading: asyncio.Future[Any] | None = None
        self._sending: asyncio.Future[None] | None = None
        self.models: frozenset[str] = frozenset()

    async def send(self, message: bytes, admitted: Admitted) -> None:
        self._taken += admitted.size
        self.models |= admitted.models
        await self._send(self._call.write(message))

    async def end_requests(self) -> None:
        await self._send(self._call.done_writing())

    async def read(self) -> bytes | None:
        """The server's next response; None at the end.

        Raises:
            grpc.aio.AioRpcError: the server has ended the stream with a status.
        """
        self._reading = asyncio.ensure_future(self._call.read())
        response = await asyncio.shield(self._reading)
        self._reading = None
        if response is grpc.aio.EOF:
            return None
        self._give_back()
        return bytes(response)

    def settle(self) -> bool:
        """Whether the stream has ended; then its pending bytes are returned."""
        over = bool(self._call.done())
        if over:
            self._give_back()
        return over

    async def drain(self) -> None:
        """Read the stream to its end and discard it."""
        try:
            if self._sending is not None:
                await asyncio.wait([self._sending])
            await self._call.done_writing()
            while await (self._reading or self._call.read()) is not grpc.aio.EOF:
                self._reading = None
        finally:
            self._give_back()

    async def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        self._sending = asyncio.ensure_future(sending)
        await asyncio.shield(self._sending)

    def _give_back(self) -> None:
        """Return the pending bytes: a server that answers has copied the requests."""
        self._pending.give_back(self._taken)
        self._taken = 0
