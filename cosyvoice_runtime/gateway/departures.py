"""Calls whose clients have left, until their end.

tritonserver 2.51 may abort, for all clients, when a stream is cancelled just as it begins or ends: its thread
then locks a mutex of what it has freed. So nothing is cancelled here. The models are told in a request of
their own to stop, and what still comes of the call is read and thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from cosyvoice_runtime.gateway.policy import STREAM_INFER
from cosyvoice_runtime.headers import LEFT_HEADER

logger = logging.getLogger(__name__)

STOP_AGAIN_S = 0.5
"""Time after which a model is told again: the first word may have overtaken the request that it is about."""


class Departures:
    """
    Args:
        channel: to tritonserver.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._tasks: set[asyncio.Task[None]] = set()

    def see_off(self, call_id: str, models: Collection[str], ending: Coroutine[Any, Any, object]) -> None:
        """Have the models stop what they do for a call.

        Args:
            ending: reads the call to its end.
        """
        task = asyncio.create_task(self._see_off(call_id, models, ending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def over(self, timeout_s: float) -> None:
        """Wait for those that are under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _see_off(
        self, call_id: str, models: Collection[str], ending: Coroutine[Any, Any, object]
    ) -> None:
        end = asyncio.create_task(ending)
        while not end.done():
            stops = [self._stop(model, call_id) for model in models]
            await asyncio.gather(*stops, return_exceptions=True)
            await asyncio.wait([end], timeout=STOP_AGAIN_S)
        if error := end.exception():
            logger.debug("the end of a call that its client has left: %s", error)

    async def _stop(self, model: str, call_id: str) -> None:
        stop = self._channel.stream_stream(STREAM_INFER)(metadata=[(LEFT_HEADER, call_id)])
        await stop.write(stop_request(model))
        await stop.done_writing()
        while await stop.read() is not grpc.aio.EOF:
            continue


def stop_request(model: str) -> bytes:
    """A request without a text, of which the header says what it is for."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="target_text", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(serialize_byte_tensor(np.array([[b""]], np.object_)).item())
    return bytes(request.SerializeToString())
