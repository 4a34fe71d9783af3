"""Requests from one model to another that computes in a model host, past the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from cosyvoice_runtime.errors import StageError
from cosyvoice_runtime.serving.host.frames import write_frame
from cosyvoice_runtime.serving.host.host_client import HostCall, HostClient, request_frame
from cosyvoice_runtime.serving.triton.schema import ModelSchema, Tensors
from cosyvoice_runtime.serving.triton.stage_calls import READY_TIMEOUT_S, Beside


class HostCalls:
    """The ``StageWay`` of models that a host serves. A call waits for a host that is not there.

    Args:
        socket: of the host.
        process: the model whose process that is.
    """

    def __init__(self, socket: Path, process: str) -> None:
        self.process: str | None = process
        self._host = HostClient(socket)

    async def infer(self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float) -> Tensors:
        responses = self.stream(schema, "", inputs, None)
        try:
            async with asyncio.timeout(timeout_s):
                return await responses.__anext__()
        except StopAsyncIteration:
            raise StageError(f"{schema.name}: no answer", "INTERNAL") from None
        finally:
            responses.cancel()

    def stream(
        self,
        schema: ModelSchema,
        request_id: str,
        inputs: Mapping[str, Any],
        further: AsyncIterator[Mapping[str, Any]] | None,
        beside: Beside | None = None,
    ) -> HostResponses:
        call = self._host.call(schema.name, waits=True, others=None if beside is None else beside.answered)
        return HostResponses(call, schema, request_id, inputs, further, beside)

    async def ready(self, model: str) -> bool:
        """Whether the host says so itself."""
        call = self._host.call(model)
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await call.begin(write_frame({"model": model, "last": True}))
                return await call.next() is None
        except (StageError, OSError):  # of which TimeoutError is one
            return False
        finally:
            call.leave()

    async def close(self) -> None:
        self._host.close()


class HostResponses:
    """A call of a host that begins when its first response is asked for."""

    def __init__(
        self,
        call: HostCall,
        schema: ModelSchema,
        request_id: str,
        inputs: Mapping[str, Any],
        further: AsyncIterator[Mapping[str, Any]] | None,
        beside: Beside | None,
    ) -> None:
        self._call = call
        self._schema = schema
        self._id = request_id
        self._first = inputs
        self._further = further
        self._beside = beside
        self._begun = False
        self._sending: asyncio.Task[None] | None = None

    async def __anext__(self) -> Tensors:
        try:
            if not self._begun:
                await self._begin()
            outputs = await self._call.next()
        except StageError:
            self.cancel()  # what else may come concerns nobody
            raise
        except OSError as error:
            self.cancel()
            raise StageError(f"{self._schema.name}: {error}", "UNAVAILABLE") from None
        if outputs is None:
            raise StopAsyncIteration
        return outputs

    def cancel(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._call.leave()

    async def _begin(self) -> None:
        self._begun = True
        last, beside = self._further is None, self._beside
        await self._call.begin(self._frame(self._first, last=last and beside is None))
        if beside is not None:
            tensors = beside.schema.encode(**beside.inputs)
            self._call.send(request_frame(beside.schema.name, self._id, tensors, last=last))
        if self._further is not None:
            self._sending = asyncio.create_task(self._send(self._further))

    async def _send(self, further: AsyncIterator[Mapping[str, Any]]) -> None:
        async for inputs in further:
            self._call.send(self._frame(inputs, last=False))
        self._call.send(write_frame({"last": True}))

    def _frame(self, inputs: Mapping[str, Any], last: bool) -> bytes:
        return request_frame(self._schema.name, self._id, self._schema.encode(**inputs), last=last)
