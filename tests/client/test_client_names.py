"""Whom a request is for, as the server is told."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from cosyvoice_client import AsyncSpeechClient, ClientError, SpeechRequest

REQUEST = SpeechRequest("Hello.")


class Listening(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Refuses all, and keeps the name that each came with."""

    def __init__(self) -> None:
        self.names: list[str | None] = []

    async def ModelStreamInfer(self, _requests, context):  # noqa: N802
        await self._refuse(context)
        yield

    async def ModelInfer(self, _request, context):  # noqa: N802
        await self._refuse(context)

    async def _refuse(self, context) -> None:
        self.names.append(dict(context.invocation_metadata()).get("x-client-id"))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "full")


def names_told(*works, **options):
    """The names of requests that a client made with these options sends, one after the other."""

    async def told():
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
        return listening.names

    return asyncio.run(told())


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
