"""``Watch`` of gRPC's health service, which tritonserver does not have: clients balance their load by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import grpc

POLL_S = 1.0
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""Serialised ``grpc.health.v1.HealthCheckResponse`` with these statuses."""


class HealthWatch:
    """Polls the server for all watchers of one event loop, and only while there are any."""

    def __init__(self, check: Callable[[], Awaitable[bytes]]) -> None:
        self._check = check
        self._state: bytes | None = None
        self._changed = asyncio.Condition()
        self._watchers = 0
        self._asking: asyncio.Task[None] | None = None

    async def states(self) -> AsyncGenerator[bytes, None]:
        """The present state, then each change of it. The caller closes the iterator."""
        told = None
        self._watchers += 1
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        try:
            while True:
                async with self._changed:
                    while self._state is None or self._state == told:
                        await self._changed.wait()
                    told = self._state
                yield told
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._asking.cancel()
                self._asking = self._state = None

    async def _ask(self) -> None:
        while True:
            try:
                state = await self._check()
            except grpc.aio.AioRpcError:
                state = NOT_SERVING
            if state != self._state:
                async with self._changed:
                    self._state = state
                    self._changed.notify_all()
            await asyncio.sleep(POLL_S)
