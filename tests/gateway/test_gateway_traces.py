"""The trace that a request belongs to, through both gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from aiohttp import ClientSession, web
from test_http_gateway import gateway_before
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.process.spans import SERVER
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
TRACE, PARENT = "a" * 32, "b" * 16
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
INVALID = [{"traceparent": "00-abc"}, {"tracestate": "vendor=1"}]


async def said_over_http(headers: dict[str, str], folder: Path) -> dict[str, str]:
    """What a model is told of a trace by its HTTP gateway."""
    seen: list[dict[str, str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(await request.json())
        return web.Response(body=b"data: {}\n\n")

    async with gateway_before(answer, folder) as address, ClientSession() as client:
        url = f"http://{address}/v2/models/m/generate_stream"
        async with client.post(url, json={"target_text": "Hello."}, headers=headers) as response:
            await response.read()
    return {name: seen[0][name] for name in HEADERS if name in seen[0]}


class Model(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[service_pb2.ModelInferRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
        self.said = dict(context.invocation_metadata() or ())
        async for _ in requests:
            yield service_pb2.ModelStreamInferResponse()


async def said_over_grpc(headers: dict[str, str], folder: Path) -> dict[str, str]:
    """What a model is told of a trace by its gRPC gateway."""
    model, server = Model(), grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(model, server)
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    gateway = GrpcGateway(GatewayOptions(address, f"{folder}/grpc", ("m",), MIB, MIB))
    await gateway.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        asked = service_pb2.ModelInferRequest(model_name="m")
        async for _ in stub.ModelStreamInfer(iter([asked]), metadata=list(headers.items())):
            pass
    await gateway.close()
    await server.stop(None)
    return {name: model.said[name] for name in HEADERS if name in model.said}


WAYS = [said_over_http, said_over_grpc]


@pytest.mark.parametrize("said_over", WAYS)
def test_the_trace_goes_on_to_the_models(said_over, tmp_path):
    assert asyncio.run(said_over(HEADERS, tmp_path)) == HEADERS


@pytest.mark.parametrize("said_over", WAYS)
@pytest.mark.parametrize("headers", INVALID)
def test_what_is_no_trace_does_not(said_over, headers, tmp_path):
    assert asyncio.run(said_over(headers, tmp_path)) == {}


@pytest.mark.parametrize(("said_over", "name"), [(WAYS[0], "gateway http"), (WAYS[1], "gateway grpc")])
def test_a_gateway_is_a_span_of_the_trace(said_over, name, tmp_path, monkeypatch):
    otlp = pytest.importorskip("otlp_receiver", reason="needs opentelemetry-sdk: requirements/cpu.in")
    with otlp.told_receiver(monkeypatch) as receiver:
        said = asyncio.run(said_over(HEADERS, tmp_path))
    [span] = receiver.spans
    assert (span.name, span.trace, span.parent, span.service) == (name, TRACE, PARENT, SERVER)
    assert said == {"traceparent": f"00-{TRACE}-{span.id}-01", "tracestate": "vendor=1"}
    assert span.said["cosyvoice.ending"] == "ok"
