"""Requests that a lost connection doesn't take."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from cosyvoice_client.errors import LostError, ServerTimeoutError
from cosyvoice_client.responses import Responses


class StuckCall:
    """A call whose write never returns, as gRPC's where the connection is lost before its metadata leave."""

    def __init__(self, ends: bool) -> None:
        self._ends = ends

    def __aiter__(self) -> StuckCall:
        return self

    async def __anext__(self) -> None:
        await asyncio.Event().wait()

    async def write(self, request: object) -> None:
        await asyncio.Event().wait()

    def add_done_callback(self, callback) -> None:
        if self._ends:
            asyncio.get_running_loop().call_later(0.01, callback, self)

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return "Socket closed"

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()


def sent(call: StuckCall, timeout_s: float) -> None:
    async def send() -> None:
        await asyncio.wait_for(Responses(call, "server", timeout_s, None).send("request"), 30)

    asyncio.run(send())


def test_request_of_a_call_that_ends_meanwhile_is_lost():
    with pytest.raises(LostError, match="server: Socket closed"):
        sent(StuckCall(ends=True), 30)


def test_request_that_nobody_takes_is_given_up():
    with pytest.raises(ServerTimeoutError, match="nothing was taken for"):
        sent(StuckCall(ends=False), 0.05)
