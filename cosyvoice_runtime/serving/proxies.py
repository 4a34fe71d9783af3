"""The proxy models, which load neither torch nor a network."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from cosyvoice_runtime.engine.frames import Array
from cosyvoice_runtime.engine.host_client import (
    NETWORKS,
    SPEECH,
    HostCall,
    HostClient,
    host_socket,
    request_frame,
)
from cosyvoice_runtime.errors import ClientGoneError, StageError
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.process.event_loop import EventLoopThread
from cosyvoice_runtime.serving.triton.load import read_parameters
from cosyvoice_runtime.serving.triton.request import Reply

logger = logging.getLogger(__name__)

LOOK_S = 0.5
"""The time between two checks whether a client has left."""


class ProxyModel:
    """Forwards a model's requests. Requests with the same id reach the model in order.

    Args:
        model: name of the model.
        socket: socket of the :class:`~cosyvoice_runtime.serving.hosted.model_host.ModelHost`.
        streamed: whether the model is decoupled; others answer once.
    """

    def __init__(self, model: str, socket: Path, streamed: bool = True) -> None:
        self._model = model
        self._streamed = streamed
        self._count = RequestCount(model)
        self._order: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._users: Counter[str] = Counter()
        self._loop = EventLoopThread("proxy")
        self._host = HostClient(socket)
        logger.info("%s is computed in another model's process, at %s", model, socket)

    def execute(self, requests: list[Any]) -> list[None] | None:
        for request in requests:
            self._count.enter()
            reply = Reply(request, self._model, self._streamed)
            try:
                frame = self._frame(request)
            except Exception as error:
                self._end(reply, error)
            else:
                self._loop.start(self._answer(request.request_id(), frame, reply))
        # Triton expects None of a decoupled model, and a list of others.
        return None if self._streamed else [None] * len(requests)

    def finalize(self) -> None:
        self._loop.run(self._hang_up())
        self._loop.close()

    async def _hang_up(self) -> None:
        self._host.close()

    async def _answer(self, name: str, frame: bytes, reply: Reply) -> None:
        try:
            await self._pass_on(name, frame, reply)
        except Exception as error:
            self._end(reply, error)
        else:
            self._end(reply)

    def _end(self, reply: Reply, error: Exception | None = None) -> None:
        try:
            reply.finish(error)
        finally:
            self._count.leave()

    async def _pass_on(self, name: str, frame: bytes, reply: Reply) -> None:
        call = self._host.call(self._model)
        send = partial(_send, reply) if self._streamed else reply.send_only
        try:
            async with self._in_order(name):
                await call.begin(frame)
                await call.next()  # The first answer says that the model has the request.
            while (outputs := await _next(call, reply)) is not None:
                send(**outputs)
        except OSError as error:
            raise self._away() from error
        finally:
            call.leave()

    def _away(self) -> StageError:
        return StageError(f"{self._model}: its process is away; try again later", "UNAVAILABLE")

    @asynccontextmanager
    async def _in_order(self, name: str) -> AsyncIterator[None]:
        """Keep requests with the same name in order; those without a name need none."""
        if not name:
            yield
            return
        self._users[name] += 1
        try:
            async with self._order[name]:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._order[name]

    def _frame(self, request: Any) -> bytes:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        return request_frame(
            self._model, request.request_id(), tensors, parameters=request.parameters() or "", tell=True
        )


async def _next(call: HostCall, reply: Reply) -> dict[str, Array] | None:
    """The next answer, None at the end; a ClientGoneError if the client leaves, of which Triton sends no
    event."""
    reading = asyncio.ensure_future(call.next())
    try:
        while not (await asyncio.wait({reading}, timeout=LOOK_S))[0]:
            if reply.cancelled:
                raise ClientGoneError
        return reading.result()
    finally:
        reading.cancel()


def _send(reply: Reply, **outputs: Array) -> None:
    """Send one answer of a stream; a ClientGoneError if the client has left."""
    if reply.cancelled:
        raise ClientGoneError
    reply.send(**outputs)


class HostedProxy:
    """The ``TritonPythonModel`` of a proxy; ``socket`` names the process that answers."""

    name: ClassVar[str]
    socket: ClassVar[str] = NETWORKS

    def initialize(self, arguments: dict[str, str]) -> None:
        read_parameters(arguments)
        policy = json.loads(arguments["model_config"]).get("model_transaction_policy", {})
        self._proxy = ProxyModel(self.name, host_socket(self.socket), streamed=policy.get("decoupled", False))

    def execute(self, requests: list[Any]) -> Any:
        return self._proxy.execute(requests)

    def finalize(self) -> None:
        self._proxy.finalize()


class OfflineModel(HostedProxy):
    """The proxy of ``cosyvoice2`` for clients that want one answer."""

    name = "cosyvoice2_offline"
    socket = SPEECH


class TensorrtLlmModel(HostedProxy):
    """The proxy of the speech LM."""

    name = "tensorrt_llm"


class AudioTokenizerModel(HostedProxy):
    """The proxy of the speech tokenizer."""

    name = "audio_tokenizer"


class SpeakerEmbeddingModel(HostedProxy):
    """The proxy of the speaker encoder."""

    name = "speaker_embedding"
