"""Responses of a gRPC stream, with the errors of this package."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from tritonclient.utils import InferenceServerException

from cosyvoice_client.errors import ServerTimeoutError, server_error, split_status

END_WAIT_S = 2.0
"""Longest wait for the end of a stream after an error, in which nothing else is of interest."""


class Responses:
    """Responses of one stream, whose end and errors are told as the client's own.

    Args:
        responses: those of tritonclient's ``stream_infer``.
        timeout_s: longest wait for the next one.
        refusal: asks for the status with which Triton refuses the model, which its streams don't tell.
    """

    def __init__(
        self, responses: Any, url: str, timeout_s: float, refusal: Callable[[], Awaitable[str | None]]
    ) -> None:
        self._responses = responses
        self._url = url
        self._timeout_s = timeout_s
        self._refusal = refusal
        self._pending: asyncio.Future[Any] | None = None
        self._alive_s = time.monotonic()

    def alive(self) -> None:
        """The wait for the next response begins anew."""
        self._alive_s = time.monotonic()

    async def next(self) -> Any:
        """The next result; None at the end of the stream.

        A failed stream is read to its end: cancelling it just then can crash Triton 24.10.

        Raises:
            ClientError: of the server, of the way to it, or because nothing came in time.
        """
        try:
            result, error = await self._read() or (None, None)
        except grpc.RpcError as failure:
            raise server_error(str(failure.code()), failure.details(), self._url) from failure
        if error is None:
            return result
        with contextlib.suppress(asyncio.TimeoutError, grpc.RpcError, ServerTimeoutError):
            await asyncio.wait_for(self._read_all(), END_WAIT_S)
        raise await self._told(error)

    def cancel(self) -> None:
        """End the stream, if it has not ended."""
        if self._pending is not None:
            self._pending.cancel()
        self._responses.cancel()

    async def _read_all(self) -> None:
        while await self._read() is not None:
            continue

    async def _read(self) -> tuple[Any, InferenceServerException | None] | None:
        """The next pair of result and error; None at the end. A wait that is given up does no harm."""
        self.alive()
        if self._pending is None:
            self._pending = asyncio.ensure_future(anext(self._responses, None))
            self._pending.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not self._pending.done():
            left_s = self._alive_s + self._timeout_s - time.monotonic()
            if left_s <= 0:
                raise ServerTimeoutError(f"{self._url}: nothing came for {self._timeout_s:g} s")
            await asyncio.wait([self._pending], timeout=left_s)
        response, self._pending = self._pending, None
        return response.result()

    async def _told(self, error: InferenceServerException) -> Exception:
        status, text = split_status(error.message())
        return server_error(status or await self._refusal(), text, self._url)
