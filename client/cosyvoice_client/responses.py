"""Responses of a gRPC stream, with the errors of this package."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from cosyvoice_client.errors import ClientError, LostError, ServerTimeoutError, server_error, split_status
from cosyvoice_client.wire import Answer, call_error

END_WAIT_S = 2.0
"""Longest wait for the end of a stream after an error, in which nothing else is of interest."""


class Responses:
    """Responses of one stream, whose end and errors are told as the client's own.

    Args:
        call: the gRPC call ``ModelStreamInfer``.
        timeout_s: longest wait for the next one.
        refusal: asks for the status with which Triton refuses the model, which its streams don't tell.

    Attributes:
        url: of the server, for texts.
    """

    def __init__(
        self, call: Any, url: str, timeout_s: float, refusal: Callable[[], Awaitable[str | None]]
    ) -> None:
        self._call = call
        # After a failed write a call's ``read`` drops the messages that have come, and the true status.
        self._responses = aiter(call)
        self.url = url
        self._timeout_s = timeout_s
        self._refusal = refusal
        self._pending: asyncio.Future[Any] | None = None
        self._alive_s = time.monotonic()

    def alive(self) -> None:
        """The wait for the next response begins anew."""
        self._alive_s = time.monotonic()

    async def send(self, request: Any) -> None:
        """Send a request, in a stream that was made without any.

        gRPC's own write never returns where the connection is lost before its metadata have left, so the end
        of the call is waited for beside it.

        Raises:
            ClientError: the stream has ended, or takes nothing for too long.
        """
        writing, ended = asyncio.ensure_future(self._call.write(request)), asyncio.Event()
        self._call.add_done_callback(lambda _: ended.set())
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait(
                [writing, ending], timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not writing.done() and not ending.done():
                raise ServerTimeoutError(f"{self.url}: nothing was taken for {self._timeout_s:g} s")
            if not writing.done() or writing.exception() is not None:
                raise await self._end()
        finally:
            for each in (writing, ending):
                each.cancel()
            await asyncio.gather(writing, ending, return_exceptions=True)

    async def end_requests(self) -> None:
        """Say that no further request comes, which a stream of one request has said already."""
        if isinstance(self._call, grpc.aio.StreamStreamCall):
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                await self._call.done_writing()

    async def next(self) -> Any:
        """The next result; None at the end of the stream.

        A failed stream is read to its end: cancelling it just then can crash Triton 24.10.

        Raises:
            ClientError: of the server, of the way to it, or because nothing came in time.
        """
        answer = await self.answer()
        if answer is None or not answer.error:
            return answer and answer.result
        await self.end_requests()  # else the server waits for more of them
        with contextlib.suppress(asyncio.TimeoutError, ClientError):
            await asyncio.wait_for(self.read_all(), END_WAIT_S)
        raise await self.told(answer.error)

    async def answer(self) -> Answer | None:
        """The next response, whatever it says; None at the end. A wait that is given up does no harm.

        Raises:
            ClientError: of the way to the server, or because nothing came in time.
        """
        self.alive()
        if self._pending is None:
            self._pending = asyncio.ensure_future(anext(self._responses, None))
            self._pending.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not self._pending.done():
            left_s = self._alive_s + self._timeout_s - time.monotonic()
            if left_s <= 0:
                raise ServerTimeoutError(f"{self.url}: nothing came for {self._timeout_s:g} s")
            await asyncio.wait([self._pending], timeout=left_s)
        pending, self._pending = self._pending, None
        try:
            response = pending.result()
        except grpc.aio.AioRpcError as failure:
            raise call_error(failure, self.url) from failure
        return None if response is None else Answer(response)

    async def told(self, error: str) -> ClientError:
        """The error of this package for one of the server within the stream."""
        status, text = split_status(error)
        return server_error(status or await self._refusal(), text, self.url)

    def cancel(self) -> None:
        """End the stream, if it has not ended."""
        if self._pending is not None:
            self._pending.cancel()
        self._call.cancel()

    async def read_all(self) -> None:
        while await self.answer() is not None:
            continue

    async def _end(self) -> ClientError:
        """Why the stream has ended, to which nothing more can be sent."""
        status, trailing = await self._call.code(), await self._call.trailing_metadata()
        if status is grpc.StatusCode.OK:
            return LostError(f"{self.url}: the stream has ended")
        details = await self._call.details()
        return call_error(grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, details), self.url)
