"""Answers that a server gives before it ends a stream are all read, though a write failed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from cosyvoice_client.errors import ClientError
from cosyvoice_client.responses import Responses
from cosyvoice_runtime.gateway.grpc_stream import ServerStream
from cosyvoice_runtime.gateway.limits import PendingBytes

METHOD = "/test/answers_and_ends"
ANSWERS = 5


class _AnswersAndEnds(grpc.GenericRpcHandler):
    def service(self, _details: Any) -> Any:
        async def serve(_requests: AsyncIterator[bytes], context: Any) -> None:
            answer = service_pb2.ModelStreamInferResponse()
            for _ in range(ANSWERS):
                await context.write(answer.SerializeToString() or b"\x0a\x00")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

        return grpc.stream_stream_rpc_method_handler(serve)


async def _counted(parse: Any, read_of: Callable[[Any], Callable[[], Awaitable[Any]]]) -> tuple[int, str]:
    """How many answers a call gives to which nothing could be written once the server had ended it, and its
    error."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_AnswersAndEnds()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    count, told = 0, ""
    async with asyncio.timeout(60), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(METHOD, response_deserializer=parse)()
        read = read_of(call)
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                await call.write(b"")
                await asyncio.sleep(0.001)
        try:
            while await read() is not None:
                count += 1
        except (grpc.aio.AioRpcError, ClientError) as error:
            told = str(error)
    await server.stop(None)
    return count, told


def test_gateway_reads_all_answers_before_the_status():
    def read_of(call: Any) -> Callable[[], Awaitable[Any]]:
        return ServerStream(call, PendingBytes(1_000)).read

    count, told = asyncio.run(_counted(None, read_of))
    assert (count, "gone" in told) == (ANSWERS, True)


def test_client_reads_all_answers_before_the_status():
    async def no_refusal() -> None:
        return None

    def read_of(call: Any) -> Callable[[], Awaitable[Any]]:
        return Responses(call, "test", 30, no_refusal).answer

    parse = service_pb2.ModelStreamInferResponse.FromString
    count, told = asyncio.run(_counted(parse, read_of))
    assert (count, "gone" in told) == (ANSWERS, True)
