"""Calls of models on the socket of their process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from cosyvoice_runtime.engine.frames import write_frame
from cosyvoice_runtime.engine.host_client import HostClient, request_frame
from cosyvoice_runtime.serving.triton.schema import ModelSchema


class HostedCalls:
    """Made and used in one event loop."""

    def __init__(self, path: Path) -> None:
        self.host = HostClient(path)

    async def stream(
        self,
        schema: ModelSchema,
        inputs: Mapping[str, Any],
        request_id: str = "",
        further: Iterable[Mapping[str, Any]] = (),
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Every answer to a request and to those that follow it in the same call."""
        call = self.host.call(schema.name)
        try:
            await call.begin(self._frame(schema, inputs, request_id))
            for each in further:
                call.send(self._frame(schema, each, request_id))
            call.send(write_frame({"last": True}))
            while (outputs := await call.next()) is not None:
                yield outputs
        finally:
            call.leave()

    async def infer(self, schema: ModelSchema, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of a model that answers once."""
        call = self.host.call(schema.name)
        try:
            await call.begin(request_frame(schema.name, "", schema.encode(**inputs)))
            outputs = await call.next()
            assert outputs is not None
            assert await call.next() is None
            return outputs
        finally:
            call.leave()

    def close(self) -> None:
        self.host.close()

    def _frame(self, schema: ModelSchema, inputs: Mapping[str, Any], request_id: str) -> bytes:
        return request_frame(schema.name, request_id, schema.encode(**inputs), last=False)
