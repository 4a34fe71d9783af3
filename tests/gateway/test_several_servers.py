"""Gateways before several servers: who is asked, who is asked next, and what clients hear of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import ClientSession, web
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.http_gateway import HttpGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.tries import offered
from cosyvoice_runtime.process.headers import ELSEWHERE_HEADER
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
MODEL = "speech"
STUB = service_pb2_grpc.GRPCInferenceServiceStub
TIMEOUT_S = 60.0


def full(seconds: float) -> str:
    return f"4 utterances are in progress, the limit; try again in {seconds:g} s"


class Speaker(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A server's gateway, which answers each request with its id.

    Attributes:
        asked: the ids of each call's requests.
        refuses_after: requests after which a call is refused, as long as this is no None.
        dies_after: answers after which a call is lost.
        over: calls that have come to their end.
    """

    def __init__(self, seconds: float = 2.0) -> None:
        self.asked: list[list[str]] = []
        self.refuses_after: int | None = None
        self.dies_after: int | None = None
        self.over = 0
        self.elsewhere: list[bool] = []
        self._seconds = seconds

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.elsewhere.append(ELSEWHERE_HEADER in dict(context.invocation_metadata()))
        self.asked.append(call := [])
        try:
            async for request in requests:
                call.append(request.id)
                await self._refuse(len(call), context)
                if self.refuses_after is None:
                    response = service_pb2.ModelStreamInferResponse()
                    response.infer_response.id = request.id
                    yield response
                if self.dies_after == len(call):
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        finally:
            self.over += 1

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.asked.append([request.id])
        await self._refuse(1, context)
        return service_pb2.ModelInferResponse(id=request.id)

    async def _refuse(self, requests: int, context: Any) -> None:
        if self.refuses_after is not None and requests >= self.refuses_after:
            await context.abort(grpc.StatusCode.UNAVAILABLE, full(self._seconds))


@asynccontextmanager
async def before(
    speakers: list[Speaker], audit: Path | None = None
) -> AsyncIterator[tuple[grpc.aio.Channel, GrpcGateway]]:
    """A channel to a gateway before these servers, which it has found all."""
    async with AsyncExitStack() as stack:
        addresses = []
        for speaker in speakers:
            server = grpc.aio.server()
            service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(speaker, server)
            addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            await server.start()
            stack.push_async_callback(server.stop, None)
        address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
        options = GatewayOptions(
            address, "", (MODEL,), MIB, MIB, gateways=tuple(addresses), audit_file=str(audit or "")
        )
        gateway = GrpcGateway(options)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        while not all(speaker.asked for speaker in speakers):
            await answers(channel, request("looking"))
        for speaker in speakers:
            speaker.asked.clear()
        yield channel, gateway


def request(name: str, event: str | None = None) -> Any:
    asked = service_pb2.ModelInferRequest(model_name=MODEL, id=name)
    if event is not None:
        asked.inputs.add(name="text_event", datatype="BYTES", shape=[1, 1])
        asked.raw_input_contents.append(len(event).to_bytes(4, "little") + event.encode())
    return asked


async def answers(channel: grpc.aio.Channel, *requests: Any) -> list[str]:
    stream = STUB(channel).ModelStreamInfer(iter(requests), timeout=TIMEOUT_S)
    return [each.infer_response.id async for each in stream]


def asked_by(speakers: list[Speaker]) -> list[list[list[str]]]:
    return [speaker.asked for speaker in speakers]


def test_servers_take_turns_and_a_call_stays_where_it_began():
    async def check() -> None:
        speakers = [Speaker(), Speaker(), Speaker()]
        async with before(speakers) as (channel, _):
            pieces = [request("a", "open"), *[request(f"a{piece}", "push") for piece in range(20)]]
            names = [each.id for each in pieces]
            for _ in range(6):
                assert await answers(channel, *pieces) == names
            assert asked_by(speakers) == [[names] * 2] * 3
            assert all(all(speaker.elsewhere) for speaker in speakers)

    asyncio.run(check())


@pytest.mark.parametrize("requests", [1, 3])
def test_call_that_a_server_refuses_goes_to_another_with_all_that_had_come(requests, tmp_path):
    async def check() -> None:
        speakers = [Speaker(), Speaker()]
        async with before(speakers, tmp_path / "audit.log") as (channel, _):
            speakers[0].refuses_after = requests
            names = ["a", "b", "c", "d"]
            for _ in range(4):
                assert await answers(channel, *map(request, names)) == names
            assert speakers[1].asked == [names] * 4
            assert speakers[0].asked[0][:requests] == names[:requests]

    asyncio.run(check())
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert {line["ending"] for line in lines} == {"ok"}


def test_when_all_refuse_the_shortest_time_is_told():
    async def check() -> None:
        speakers = [Speaker(7), Speaker(3), Speaker(5)]
        async with before(speakers) as (channel, _):
            for speaker in speakers:
                speaker.refuses_after = 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answers(channel, request("a"))
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, full(3))
            assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "3000"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await STUB(channel).ModelInfer(request("b"), timeout=TIMEOUT_S)
            assert caught.value.details() == full(3)
            assert asked_by(speakers) == [[["a"], ["b"]]] * 3

    asyncio.run(check())


def test_whole_answers_come_from_a_server_that_does_not_refuse():
    async def check() -> None:
        speakers = [Speaker(), Speaker()]
        async with before(speakers) as (channel, _):
            speakers[1].refuses_after = 1
            for name in "abcd":
                assert (await STUB(channel).ModelInfer(request(name), timeout=TIMEOUT_S)).id == name
            assert speakers[0].asked == [["a"], ["b"], ["c"], ["d"]]

    asyncio.run(check())


def test_speech_that_was_begun_is_not_asked_for_again():
    async def check() -> None:
        speakers = [Speaker(), Speaker()]
        async with before(speakers) as (channel, _):
            for speaker in speakers:
                speaker.dies_after = 2
            stream = STUB(channel).ModelStreamInfer(iter(map(request, "abc")), timeout=TIMEOUT_S)
            answers = aiter(stream)
            assert [(await anext(answers)).infer_response.id for _ in range(2)] == ["a", "b"]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(answers)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "the model is being started; try again later"
            assert sum(len(speaker.asked) for speaker in speakers) == 1

    asyncio.run(check())


def test_client_that_leaves_leaves_the_server():
    async def check() -> None:
        speakers = [Speaker(), Speaker()]
        async with before(speakers) as (channel, _):
            stream = STUB(channel).ModelStreamInfer()
            await stream.write(request("a", "open"))
            assert (await stream.read()).infer_response.id == "a"
            for speaker in speakers:
                speaker.over = 0
            stream.cancel()
            deadline = time.monotonic() + TIMEOUT_S
            while sum(speaker.over for speaker in speakers) != 1:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    asyncio.run(check())


def test_gateway_without_a_server_says_that_it_is_being_started():
    async def check() -> None:
        ports = ServerPorts.choose(FREE)
        nobody = (f"127.0.0.1:{ports.http}", f"127.0.0.1:{ports.metrics}")
        address = f"127.0.0.1:{ports.grpc}"
        gateway = GrpcGateway(GatewayOptions(address, "", (MODEL,), MIB, MIB, gateways=nobody))
        await gateway.start()
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await answers(channel, request("a"))
                assert caught.value.details() == "the model is being started; try again later"
        finally:
            await gateway.close()

    asyncio.run(check())


def test_other_refusals_are_told_at_once():
    asked = []

    async def ask() -> None:
        asked.append(1)
        raise RefusedError("INVALID_ARGUMENT", "text: empty")

    with pytest.raises(RefusedError, match="text: empty"):
        asyncio.run(offered(ask, 3))
    assert len(asked) == 1


@asynccontextmanager
async def http_before(*answer: Any) -> AsyncIterator[tuple[ClientSession, str]]:
    """A client, and the address of a gateway before servers that answer so."""
    async with AsyncExitStack() as stack:
        addresses = []
        for each in answer:
            runner = web.ServerRunner(web.Server(each))
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            addresses.append("{}:{}".format(*runner.addresses[0]))
        address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
        gateway = HttpGateway(GatewayOptions(address, "", (MODEL,), MIB, MIB, gateways=tuple(addresses)))
        await gateway.start()
        stack.push_async_callback(gateway.close)
        yield await stack.enter_async_context(ClientSession(f"http://{address}")), address


def test_http_asks_the_servers_in_turn_and_another_after_a_refusal():
    async def check() -> None:
        asked: list[tuple[str, str | None]] = []

        def server(name: str, refuses: bool) -> Any:
            async def answer(request: web.BaseRequest) -> web.Response:
                asked.append((name, request.headers.get(ELSEWHERE_HEADER)))
                if refuses:
                    return web.json_response({"error": full(4 if name == "a" else 6)}, status=503)
                return web.json_response({"said": (await request.read()).decode()})

            return answer

        async with http_before(server("a", True), server("b", False), server("c", False)) as (client, _):
            for number in range(3):
                path = f"/v2/models/{MODEL}/infer"
                async with client.post(path, json={"inputs": [], "id": str(number)}) as got:
                    assert got.status == 200
                    assert f'"id": "{number}"' in (await got.json())["said"]
        assert asked == [(name, "1") for name in "bcab"]
        async with (
            http_before(server("a", True), server("b", True)) as (client, _),
            client.post(f"/v2/models/{MODEL}/infer", json={"inputs": []}) as got,
        ):
            assert (got.status, got.headers["Retry-After"]) == (503, "4")
            assert (await got.json())["error"] == full(4)

    asyncio.run(check())


def test_http_is_ready_while_one_server_is():
    async def check() -> None:
        states = {"a": 400, "b": 400, "c": 200}

        def server(name: str) -> Any:
            async def answer(request: web.BaseRequest) -> web.Response:
                return web.json_response({"error": "no"} if states[name] != 200 else {}, status=states[name])

            return answer

        async with http_before(*map(server, "abc")) as (client, _):
            for _ in range(3):
                assert (await client.get("/v2/health/ready")).status == 200
                assert (await client.get(f"/v2/models/{MODEL}/ready")).status == 200
            states["c"] = 400
            assert (await client.get("/v2/health/ready")).status == 400

    asyncio.run(check())


async def dead(request: web.BaseRequest) -> web.Response:
    """Hang up without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def alive(request: web.BaseRequest) -> web.Response:
    return web.json_response({"ok": True})


def test_http_goes_on_where_a_server_hangs_up():
    async def check() -> None:
        async with http_before(dead, alive) as (client, _):
            for _ in range(4):
                async with client.post(f"/v2/models/{MODEL}/infer", json={"inputs": []}) as got:
                    assert (got.status, await got.json()) == (200, {"ok": True})

    asyncio.run(check())


def test_http_finds_the_server_that_is_left_whatever_others_ask():
    async def check() -> None:
        async with http_before(dead, dead, dead, dead, alive) as (client, _):

            async def ask() -> int:
                async with client.post(f"/v2/models/{MODEL}/infer", json={"inputs": []}) as got:
                    return got.status

            assert await asyncio.gather(*(ask() for _ in range(20))) == [200] * 20

    asyncio.run(check())


def test_http_client_that_leaves_leaves_the_server():
    async def check() -> None:
        left = asyncio.Event()
        came = asyncio.Event()

        async def endless(request: web.Request) -> web.StreamResponse:
            came.set()
            try:
                await asyncio.sleep(TIMEOUT_S)
            except asyncio.CancelledError:
                left.set()
                raise
            raise AssertionError

        async with AsyncExitStack() as stack:
            app = web.Application()
            app.router.add_post("/{path:.*}", endless)
            runner = web.AppRunner(app, handler_cancellation=True)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            behind = "{}:{}".format(*runner.addresses[0])
            address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
            gateway = HttpGateway(GatewayOptions(address, "", (MODEL,), MIB, MIB, gateways=(behind, behind)))
            await gateway.start()
            stack.push_async_callback(gateway.close)
            client = await stack.enter_async_context(ClientSession(f"http://{address}"))
            asking = asyncio.create_task(client.post(f"/v2/models/{MODEL}/infer", json={"inputs": []}))
            await asyncio.wait_for(came.wait(), TIMEOUT_S)
            asking.cancel()
            await asyncio.wait_for(left.wait(), TIMEOUT_S)

    asyncio.run(check())
