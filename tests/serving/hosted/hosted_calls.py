"""Calls of models on the socket of their process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from cosyvoice_runtime.engine.host_client import HostClient, request_frame
from cosyvoice_runtime.serving.triton.tensor_spec import ModelSchema


class HostedCalls:
    """Made and used in one event loop."""

    def __init__(self, path: Path) -> None:
        self.host = HostClient(path)

    async def stream(
        self, schema: ModelSchema, inputs: Mapping[str, Any], request_id: str = ""
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Every answer to a request."""
        call = self.host.call(schema.name)
        try:
            await call.begin(request_frame(schema.name, request_id, schema.encode(**inputs)))
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
