"""A client's gRPC stream: its requests go to the server, and the responses come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tritonclient.grpc import service_pb2

from cosyvoice_runtime.errors import STATUSES, with_status
from cosyvoice_runtime.gateway.audit import FINAL, CallAudit
from cosyvoice_runtime.gateway.client_call import ClientCall
from cosyvoice_runtime.gateway.policy import (
    RefusedError,
)
from cosyvoice_runtime.gateway.server_stream import Admitted, ServerStream
from cosyvoice_runtime.gateway.wire_fields import check_fields
from cosyvoice_runtime.gateway.wording import reworded_in_stream

logger = logging.getLogger(__name__)

SMALL_BYTES = 65_536
"""A message up to this size can't hold many fields; only inference requests are larger."""


class ClientRequests:
    """The requests of a client's stream; a refused request is answered in its place.

    Args:
        admit: checks a request; raises RefusedError.
    """

    def __init__(self, client: ClientCall, admit: Callable[[bytes], Admitted]) -> None:
        self._client = client
        self._admit = admit

    async def next(self, within_s: float | None = None) -> tuple[bytes, Admitted] | None:
        """The next admitted request; None after the client's last message.

        Args:
            within_s: longest wait for each message; None waits without a limit.

        Raises:
            ClientGoneError: it has left.
            RefusedError: no message came in time.
        """
        while (message := await self._client.read(within_s)) is not None:
            try:
                return message, self._admit(message)
            except RefusedError as refusal:
                await self._client.write(_error(refusal, message))
        return None


async def exchange(
    client: ClientCall,
    requests: ClientRequests,
    server: ServerStream,
    first: tuple[bytes, Admitted],
    audit: CallAudit,
) -> None:
    """Forward messages in both directions, from the first request until the server ends the stream.

    Raises:
        ClientGoneError: the client has left.
        grpc.aio.AioRpcError: the server has ended it with a status.
    """
    passing = asyncio.create_task(_pass_on(requests, server, first))
    try:
        while (response := await server.read()) is not None:
            await client.write(_told_in_stream(response, audit))
    finally:
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)


async def _pass_on(requests: ClientRequests, server: ServerStream, first: tuple[bytes, Admitted]) -> None:
    request: tuple[bytes, Admitted] | None = first
    while request is not None:
        await server.send(*request)
        request = await requests.next()
    await server.end_requests()


def _told_in_stream(response: bytes, audit: CallAudit) -> bytes:
    """Count and reword what a response reports; most responses are audio, and pass unchanged."""
    parsed = service_pb2.ModelStreamInferResponse.FromString(response)
    audit.answered(parsed)
    if not parsed.error_message:
        return response
    parsed.error_message = reworded_in_stream(parsed.error_message)
    return bytes(parsed.SerializeToString())


def _error(refusal: RefusedError, message: bytes) -> bytes:
    """The last response of a refused request, in the form of the models' own errors."""
    status = refusal.status if refusal.status in STATUSES else "INTERNAL"
    response = service_pb2.ModelStreamInferResponse(error_message=with_status(status, str(refusal)))
    try:
        request = parsed(service_pb2.ModelInferRequest, message)
    except RefusedError:
        logger.debug("a request that can't be parsed", exc_info=True)
    else:
        response.infer_response.model_name, response.infer_response.id = request.model_name, request.id
        response.infer_response.parameters[FINAL].bool_param = True
    return bytes(response.SerializeToString())


def parsed(kind: Any, message: bytes) -> Any:
    """Parse a message after its fields were counted.

    Raises:
        RefusedError: it is no such message, or has too many fields.
    """
    if len(message) > SMALL_BYTES:
        check_fields(message, kind.DESCRIPTOR)
    try:
        return kind.FromString(message)
    except Exception:
        raise RefusedError("INVALID_ARGUMENT", f"the message is no {kind.DESCRIPTOR.name}") from None
