"""The client tells the server whom a request is for, and which trace it belongs to."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from cosyvoice_client import AsyncSpeechClient, ClientError, SpeechRequest

REQUEST = SpeechRequest("Hello.")


class Listening(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Refuses all, and keeps the name and the trace that each came with."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self.traces: list[str | None] = []

    async def ModelStreamInfer(self, _requests, context):  # noqa: N802
        await self._refuse(context)
        yield

    async def ModelInfer(self, _request, context):  # noqa: N802
        await self._refuse(context)

    async def _refuse(self, context) -> None:
        said = dict(context.invocation_metadata())
        self.names.append(said.get("x-client-id"))
        self.traces.append(said.get("traceparent"))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "full")


def names_told(*works, **options):
    """The names of requests that a client made with these options sends, one after the other."""
    return told(*works, **options).names


def told(*works, **options):
    """The metadata of the requests, in order, of a client that is made with these options."""

    async def tell():
        server, listening = grpc.aio.server(), Listening()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(listening, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with AsyncSpeechClient(f"127.0.0.1:{port}", **options) as client:
                for work in works:
                    with pytest.raises(ClientError):
                        await work(client)
        finally:
            await server.stop(None)
        return listening

    return asyncio.run(tell())


def speak(**named):
    async def work(client):
        await anext(client.speak(REQUEST, **named))

    return work


def speak_text(**named):
    async def work(client):
        async with client.speak_text(REQUEST, **named):
            pass

    return work


async def synthesize(client):
    await client.synthesize(REQUEST)


def test_client_without_a_name_tells_none():
    assert names_told(speak(), speak_text(), synthesize) == [None] * 3


def test_client_tells_its_name():
    assert names_told(speak(), speak_text(), synthesize, name="me") == ["me"] * 3


def test_request_may_be_for_somebody_else():
    assert names_told(speak(name="anna"), speak_text(name="anna"), speak(), name="me") == [
        "anna",
        "anna",
        "me",
    ]


def test_each_call_tells_its_place_in_the_trace():
    numbers = iter("123456789")
    server, other = "127.0.0.1:1", "127.0.0.1:2"  # where nobody listens
    heard = told(speak(), speak_text(), synthesize, trace=lambda said: said.update(traceparent=next(numbers)))
    assert heard.traces == ["1", "2", "3"]

    async def lost():
        trace = lambda said: said.update(traceparent=next(numbers))  # noqa: E731
        async with AsyncSpeechClient(f"{server},{other}", trace=trace) as client:
            with pytest.raises(ClientError):
                await client.synthesize(REQUEST)

    asyncio.run(lost())
    assert next(numbers) == "7"  # three tries


def test_client_without_a_trace_tells_none():
    assert told(speak(), synthesize).traces == [None, None]
