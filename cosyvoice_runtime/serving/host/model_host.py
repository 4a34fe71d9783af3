"""The models of a process, served on a Unix socket in the protocol of tritonserver (KServe v2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.errors import status_of, with_status
from cosyvoice_runtime.event_loop import EventLoopThread
from cosyvoice_runtime.metrics.metrics import shared_directory
from cosyvoice_runtime.serving.host.hosted_request import (
    Answers,
    HostedRequest,
    LoopCalls,
    ModelAnswer,
    write_response,
)

logger = logging.getLogger(__name__)

SOCKET = "networks"
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
END_S = 1.0
"""For calls in progress, when the host ends: the models have answered their requests before."""


def socket_url() -> str | None:
    """Where the models of one process answer, in the directory of the server's run; None without one."""
    directory = shared_directory()
    return None if directory is None else f"unix:{directory / SOCKET}"


class HostedModel(Protocol):
    """What Triton calls a model."""

    def execute(self, requests: list[Any]) -> object:
        """Begin each request; its answers may come from other threads. Raises nothing."""


class ModelHost:
    """Serves models until it is closed.

    The socket is in a folder that only the server's own user may enter, so it asks for no key.

    Args:
        url: ``unix:path``; what a dead process left there is removed.
        models: by name.
    """

    def __init__(self, url: str, models: Mapping[str, HostedModel]) -> None:
        Path(url.removeprefix("unix:")).unlink(missing_ok=True)
        self._loop = EventLoopThread("networks")
        self._server = self._loop.run(_serve(url, models))
        logger.info("%s answer at %s", " and ".join(models), url)

    def close(self) -> None:
        self._loop.run(self._server.stop(END_S))
        self._loop.close()


async def _serve(url: str, models: Mapping[str, HostedModel]) -> grpc.aio.Server:
    server = grpc.aio.server(options=UNLIMITED)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Calls(models), server)
    server.add_insecure_port(url)
    await server.start()
    return server


class Calls(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Calls of models: those that answer once, and streams. Made in the loop that serves them."""

    def __init__(self, models: Mapping[str, HostedModel]) -> None:
        self._models = models
        self._calls = LoopCalls()

    async def ModelInfer(self, message: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        answers = Answers(self._calls)
        try:
            self._begin(message, answers)
            answers.close()
            answer = await answers.get()
        finally:
            answers.gone = True
        if answer is None or answer.status:
            answer = answer or ModelAnswer({}, "INTERNAL", f"{message.model_name}: no answer")
            await context.abort(grpc.StatusCode[answer.status], answer.message)
        return write_response(message.model_name, message.id, answer.outputs)

    async def ModelStreamInfer(self, messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Answers of all requests of the stream. Its headers tell that the model has the first request."""
        answers = Answers(self._calls)
        first = await anext(messages, None)
        if first is None:
            return
        self._begin(first, answers)
        reading = asyncio.create_task(self._read(messages, answers))
        try:
            await context.send_initial_metadata(())
            while (answer := await answers.get()) is not None:
                yield _streamed(first, answer)
        finally:
            answers.gone = True
            reading.cancel()

    async def _read(self, messages: AsyncIterator[Any], answers: Answers) -> None:
        try:
            async for message in messages:
                self._begin(message, answers)
        finally:
            answers.close()

    def _begin(self, message: Any, answers: Answers) -> None:
        model = self._models.get(message.model_name)
        try:
            if model is None:
                raise KeyError(message.model_name)
            request = HostedRequest(message, answers)
        except Exception as error:
            status = "NOT_FOUND" if isinstance(error, KeyError) else status_of(error)
            answers.put(ModelAnswer({}, status, str(error)), final=False)
            return
        model.execute([request])


def _streamed(request: Any, answer: ModelAnswer) -> Any:
    """Errors of models begin with their status already, as Triton keeps none in a stream."""
    if answer.status:
        text = answer.message
        told = text.startswith(f"{answer.status}: ")
        return service_pb2.ModelStreamInferResponse(
            error_message=text if told else with_status(answer.status, text)
        )
    response = write_response(request.model_name, request.id, answer.outputs)
    return service_pb2.ModelStreamInferResponse(infer_response=response)
