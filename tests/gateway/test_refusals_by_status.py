"""Refusals by gRPC's status, which proxies and gRPC's own retries see, and ask another server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.errors import with_status
from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import HEALTH_CHECK, HEALTH_WATCH
from cosyvoice_runtime.serving.speech.admission import BOARD_FILE, Admission
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts
from taken_place import taken_place

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
MODEL = "speech"
STUB = service_pb2_grpc.GRPCInferenceServiceStub
FULL = "4 utterances are in progress, the limit; try again in 2.5 s"
ELSEWHERE = ("x-asks-elsewhere", "1")
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
RETRIES = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.1s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}


class FakeModel(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request with its id, or refuses those whose id begins with ``full``."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[service_pb2.ModelInferRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
        async for request in requests:
            self.asked.append(request.id)
            response = service_pb2.ModelStreamInferResponse()
            response.infer_response.id = request.id
            if request.id.startswith("full"):
                response.error_message = with_status("UNAVAILABLE", FULL)
            yield response


class Healthy(grpc.GenericRpcHandler):
    """Says that tritonserver is serving."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        async def check(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            return SERVING

        return grpc.unary_unary_rpc_method_handler(check) if details.method == HEALTH_CHECK else None


@asynccontextmanager
async def gateway(model: FakeModel, folder: Path, **options: float) -> AsyncIterator[tuple[str, GrpcGateway]]:
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(model, server)
    server.add_generic_rpc_handlers([Healthy()])
    folder.mkdir(exist_ok=True)
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    served = GrpcGateway(
        GatewayOptions(address, f"{folder}/grpc", (MODEL,), MIB, MIB, shared=str(folder), **options)
    )
    await served.start()
    try:
        yield address, served
    finally:
        await served.close()
        await server.stop(None)


def request(name: str, event: str | None = None) -> service_pb2.ModelInferRequest:
    asked = service_pb2.ModelInferRequest(model_name=MODEL, id=name)
    if event is not None:
        asked.inputs.add(name="text_event", datatype="BYTES", shape=[1, 1])
        asked.raw_input_contents.append(len(event).to_bytes(4, "little") + event.encode())
    return asked


async def answers(
    channel: grpc.aio.Channel, *requests: service_pb2.ModelInferRequest, **call: object
) -> list:
    stream = STUB(channel).ModelStreamInfer(iter(requests), **call)
    return [(each.infer_response.id, each.error_message) async for each in stream]


def test_call_that_the_model_refuses_at_first_ends_with_the_status(tmp_path):
    async def check() -> None:
        async with (
            gateway(FakeModel(), tmp_path) as (address, _),
            grpc.aio.insecure_channel(address) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answers(channel, request("full"))
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, FULL)
            told = dict(caught.value.trailing_metadata())
            assert told["grpc-retry-pushback-ms"] == "2500"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answers(channel, request("full"), metadata=[ELSEWHERE])
            assert "grpc-retry-pushback-ms" not in dict(caught.value.trailing_metadata())

    asyncio.run(check())


def test_call_that_has_answered_or_has_other_utterances_is_told_by_a_message(tmp_path):
    async def check() -> None:
        async with (
            gateway(FakeModel(), tmp_path) as (address, _),
            grpc.aio.insecure_channel(address) as channel,
        ):
            stream = STUB(channel).ModelStreamInfer()
            for name, error in (("a", ""), ("full", f"UNAVAILABLE: {FULL}"), ("b", "")):
                await stream.write(request(name))
                assert (await stream.read()).error_message == error
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF

    asyncio.run(check())


def test_refused_open_ends_the_call_whatever_text_follows_it(tmp_path):
    async def check() -> None:
        async with (
            gateway(FakeModel(), tmp_path) as (address, _),
            grpc.aio.insecure_channel(address) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answers(channel, request("full", "open"), request("a", "push"), request("b", "end"))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(check())


@pytest.mark.parametrize("by", ["gateway", "model"])
def test_retries_of_grpc_ask_another_server(tmp_path, by):
    """Of two servers the first has no place: its gateway knows that, or its model."""

    class Full(FakeModel):
        async def ModelStreamInfer(self, requests, context):  # noqa: N802
            async for request in requests:
                self.asked.append(request.id)
                error = with_status("UNAVAILABLE", FULL)
                yield service_pb2.ModelStreamInferResponse(error_message=error)

    async def check() -> None:
        full, free = Full() if by == "model" else FakeModel(), FakeModel()
        async with AsyncExitStack() as stack:
            Admission(1, tmp_path / BOARD_FILE)
            if by == "gateway":
                stack.enter_context(taken_place(tmp_path))
            first, _ = await stack.enter_async_context(gateway(full, tmp_path))
            second, _ = await stack.enter_async_context(gateway(free, tmp_path / "second"))
            options = [("grpc.service_config", json.dumps(RETRIES))]
            channel = grpc.aio.insecure_channel(f"ipv4:{first},{second}", options)
            await stack.enter_async_context(channel)
            names = [str(number) for number in range(8)]
            for name in names:
                assert await answers(channel, request(name), metadata=[ELSEWHERE]) == [(name, "")]
            assert free.asked == names
            assert bool(full.asked) == (by == "model")

    asyncio.run(check())


def test_stopping_server_ends_what_it_has_begun_and_begins_nothing(tmp_path):
    async def check() -> None:
        async with gateway(FakeModel(), tmp_path) as (address, served), AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            stream = STUB(channel).ModelStreamInfer()
            await stream.write(request("a", "open"))
            assert (await stream.read()).infer_response.id == "a"
            watch = channel.unary_stream(HEALTH_WATCH)(b"")
            assert await watch.read() == SERVING

            await served.leave()
            await served.leave()
            assert await watch.read() == NOT_SERVING
            later = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            assert await later.unary_unary(HEALTH_CHECK)(b"") == NOT_SERVING
            ready = await STUB(later).ServerReady(service_pb2.ServerReadyRequest())
            model = await STUB(later).ModelReady(service_pb2.ModelReadyRequest(name=MODEL))
            assert (ready.ready, model.ready) == (False, False)
            for asking in (channel, later):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await answers(asking, request("b"))
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
                assert caught.value.details() == "the server is stopping; try again later"
            assert await answers(later, request("c", "push")) == [("c", "")]

            await stream.write(request("d", "push"))
            assert (await stream.read()).infer_response.id == "d"
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            watch.cancel()

    asyncio.run(check())


def test_connection_of_an_age_goes_away_and_its_calls_go_on(tmp_path):
    async def check() -> None:
        seen = []
        async with gateway(FakeModel(), tmp_path, max_connection_age_s=0.2) as (address, served):
            real = served._calls._answer

            async def noted(method, client, *rest):
                seen.append(client._context.peer())
                await real(method, client, *rest)

            served._calls._answer = noted
            async with grpc.aio.insecure_channel(address) as channel:
                stream = STUB(channel).ModelStreamInfer()
                await stream.write(request("a"))
                assert (await stream.read()).infer_response.id == "a"
                while len(set(seen)) < 2:
                    assert await answers(channel, request("b")) == [("b", "")]
                    await asyncio.sleep(0.05)
                await stream.write(request("c"))
                assert (await stream.read()).infer_response.id == "c"

    asyncio.run(check())
