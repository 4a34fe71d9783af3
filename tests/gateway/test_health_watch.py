"""``Watch`` of gRPC's health service, as clients that balance their load ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from cosyvoice_runtime.gateway import grpc_gateway, health_watch
from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import HEALTH, HEALTH_CHECK, HEALTH_WATCH
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
SERVICES = {"the server": b"", "its service": b"\x0a\x1einference.GRPCInferenceService"}
TIMEOUT_S = 60.0
MIB = 2**20


class FakeTriton:
    """Says whether it is ready, and counts how often it is asked."""

    def __init__(self) -> None:
        self.state = SERVING
        self.asked = 0

    async def check(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.asked += 1
        if not self.state:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return self.state


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "POLL_S", 0.01)


@asynccontextmanager
async def gateway_before(triton: FakeTriton, folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    """A client's channel to a gateway in front of it."""
    server = grpc.aio.server()
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(triton.check)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(HEALTH.strip("/"), handlers)])
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    gateway = GrpcGateway(GatewayOptions(address, f"{folder}/grpc", ("m",), MIB, MIB))
    await gateway.start()
    async with asyncio.timeout(TIMEOUT_S), grpc.aio.insecure_channel(address) as channel:
        yield channel
    await gateway.close()
    await server.stop(None)


def watch(channel: grpc.aio.Channel, service: bytes = b"") -> grpc.aio.UnaryStreamCall:
    return channel.unary_stream(HEALTH_WATCH)(service)


@pytest.mark.parametrize("service", SERVICES)
def test_state_is_told_at_once_and_then_when_it_changes(tmp_path, service):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            call = watch(channel, SERVICES[service])
            assert await call.read() == SERVING == await channel.unary_unary(HEALTH_CHECK)(b"")
            for state, told in ((NOT_SERVING, NOT_SERVING), (SERVING, SERVING), (b"", NOT_SERVING)):
                triton.state = state
                assert await call.read() == told
            call.cancel()

    asyncio.run(check())


def test_state_that_stays_is_told_once(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            call = watch(channel)
            await call.read()
            next_one = asyncio.create_task(call.read())
            while triton.asked < 5:
                await asyncio.sleep(0.01)
            assert not next_one.done()
            call.cancel()
            await asyncio.gather(next_one, return_exceptions=True)

    asyncio.run(check())


def test_many_who_watch_ask_the_server_once_and_nobody_who_left_asks_it(tmp_path):
    async def check() -> None:
        triton = FakeTriton()
        async with gateway_before(triton, tmp_path) as channel:
            health_watch.POLL_S = TIMEOUT_S
            calls = [watch(channel) for _ in range(50)]
            assert [await call.read() for call in calls] == [SERVING] * 50
            assert triton.asked == 1
            for call in calls:
                call.cancel()
            health_watch.POLL_S = 0.01
            # A watch that begins after the last one has ended asks anew.
            triton.state = NOT_SERVING
            while await (again := watch(channel)).read() != NOT_SERVING:
                again.cancel()
                await asyncio.sleep(0.01)
            again.cancel()
            before = -1
            while before != triton.asked:
                before = triton.asked
                await asyncio.sleep(0.1)

    asyncio.run(check())


def test_other_calls_of_the_service_are_closed(tmp_path):
    async def check() -> str:
        async with gateway_before(FakeTriton(), tmp_path) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"{HEALTH}/List")(b"")
            return str(caught.value.code().name)

    assert asyncio.run(check()) == "PERMISSION_DENIED"


def test_health_is_told_where_no_further_call_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(grpc_gateway, "MAX_CALLS", 1)

    async def check() -> None:
        async with gateway_before(FakeTriton(), tmp_path) as channel:
            call = watch(channel)
            assert await call.read() == SERVING
            with pytest.raises(grpc.RpcError):
                await watch(channel).read()
            assert await channel.unary_unary(HEALTH_CHECK)(b"") == SERVING
            call.cancel()

    asyncio.run(check())
