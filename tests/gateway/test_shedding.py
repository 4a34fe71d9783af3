"""Refusals of the gateways as clients get them, and what of them reaches the server: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from aiohttp import ClientSession, web
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway
from cosyvoice_runtime.gateway.http_gateway import HttpGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.serving.speech.admission import BOARD_FILE, Admission
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts
from taken_place import taken_place

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
MODEL = "speech"
STUB = service_pb2_grpc.GRPCInferenceServiceStub
NO_ROOM = "1 utterances are in progress, the limit; try again in 0.4 s"


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request with its id.

    Attributes:
        calls: streams and unary calls that reached it.
        asked: ids of the requests in them.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.asked: list[str] = []

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[service_pb2.ModelInferRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
        self.calls += 1
        async for request in requests:
            self.asked.append(request.id)
            response = service_pb2.ModelInferResponse(id=request.id)
            yield service_pb2.ModelStreamInferResponse(infer_response=response)

    async def ModelInfer(  # noqa: N802
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelInferResponse:
        self.calls += 1
        self.asked.append(request.id)
        return service_pb2.ModelInferResponse(id=request.id)


@pytest.fixture
def model(tmp_path: Path) -> Admission:
    """Has one place; while it is taken by somebody else, nobody has a turn."""
    return Admission(1, tmp_path / BOARD_FILE)


@asynccontextmanager
async def grpc_gateway(triton: FakeTriton, folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    server.add_insecure_port(f"unix:{folder}/grpc")
    await server.start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).grpc}"
    gateway = GrpcGateway(GatewayOptions(address, f"{folder}/grpc", (MODEL,), MIB, MIB, shared=str(folder)))
    await gateway.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel
    await gateway.close()
    await server.stop(None)


@asynccontextmanager
async def http_gateway(
    answer: Callable[..., Awaitable[web.StreamResponse]], folder: Path
) -> AsyncIterator[str]:
    server = web.ServerRunner(web.Server(answer))
    await server.setup()
    await web.UnixSite(server, folder / "http").start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
    gateway = HttpGateway(
        GatewayOptions(address, str(folder / "http"), (MODEL,), MIB, MIB, shared=str(folder))
    )
    await gateway.start()
    yield f"http://{address}/v2/models/{MODEL}"
    await gateway.close()
    await server.cleanup()


def request(number: int) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(model_name=MODEL, id=str(number))


def test_stream_that_is_refused_is_none_to_the_server(tmp_path, model):
    async def check() -> None:
        triton = FakeTriton()
        async with grpc_gateway(triton, tmp_path) as channel:
            with taken_place(tmp_path):
                stream = STUB(channel).ModelStreamInfer(iter([request(1)]))
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await anext(aiter(stream))
        assert triton.calls == 0
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, NO_ROOM)
        assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "400"

    asyncio.run(check())


def test_stream_goes_on_after_a_refusal_in_it(tmp_path, model):
    async def check() -> None:
        triton = FakeTriton()
        async with grpc_gateway(triton, tmp_path) as channel:
            stream = STUB(channel).ModelStreamInfer(metadata=[("x-client-id", "me")])
            await stream.write(request(1))
            assert (await stream.read()).infer_response.id == "1"
            with taken_place(tmp_path):
                await stream.write(request(2))
                refused = await stream.read()
            assert refused.error_message == f"UNAVAILABLE: {NO_ROOM}"
            last = refused.infer_response
            assert (last.id, last.model_name) == ("2", MODEL)
            assert last.parameters["triton_final_response"].bool_param
            await stream.write(request(3))
            assert (await stream.read()).infer_response.id == "3"
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
        assert (triton.calls, triton.asked) == (1, ["1", "3"])

    asyncio.run(check())


def test_client_that_leaves_after_a_refusal_leaves_nothing_behind(tmp_path, model):
    async def check() -> None:
        triton = FakeTriton()
        async with grpc_gateway(triton, tmp_path) as channel:
            with taken_place(tmp_path):
                for number in range(20):
                    stream = STUB(channel).ModelStreamInfer()
                    await stream.write(request(number))
                    with pytest.raises(grpc.aio.AioRpcError):
                        await stream.read()
                    stream.cancel()
            assert (await STUB(channel).ModelInfer(request(99), metadata=[("x-client-id", "a")])).id == "99"
        assert (triton.calls, triton.asked) == (1, ["99"])

    asyncio.run(check())


def test_single_answer_is_refused_with_a_status(tmp_path, model):
    async def check() -> None:
        triton = FakeTriton()
        async with grpc_gateway(triton, tmp_path) as channel:
            with taken_place(tmp_path), pytest.raises(grpc.aio.AioRpcError) as caught:
                await STUB(channel).ModelInfer(request(1))
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, NO_ROOM)
        assert triton.calls == 0

    asyncio.run(check())


BODIES = {"infer": {"inputs": []}, "generate": {"target_text": "a"}, "generate_stream": {"target_text": "a"}}


@pytest.mark.parametrize("path", BODIES)
def test_http_is_refused_with_503(tmp_path, model, path):
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(request.path.rpartition("/")[2])
        return web.json_response({})

    async def ask(url: str) -> tuple[int, dict[str, str]]:
        async with ClientSession() as client, client.post(f"{url}/{path}", json=BODIES[path]) as answer:
            return answer.status, await answer.json()

    async def check() -> None:
        async with http_gateway(answer, tmp_path) as url:
            with taken_place(tmp_path):
                assert await ask(url) == (503, {"error": NO_ROOM})
            assert path not in asked

    asyncio.run(check())


def test_message_for_an_utterance_that_is_spoken_reaches_the_server(tmp_path, model):
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append((await request.json())["text_event"])
        return web.Response(body=b"data: {}\n\n", content_type="text/event-stream")

    async def check() -> None:
        async with http_gateway(answer, tmp_path) as url, ClientSession() as client:
            with taken_place(tmp_path):
                for event in ("push", "open"):
                    body = {"target_text": "a", "utterance_id": "x" * 16, "text_event": event}
                    async with client.post(f"{url}/generate_stream", json=body) as response:
                        await response.read()

    asyncio.run(check())
    assert asked == ["push"]


ERRORS = {
    b'{"error":"2 utterances are in progress, the limit; try again in 2.5 s"}': 503,
    b'data: {"error":"UNAVAILABLE: token2wav is being started again; try again later"}\n\n': 503,
    b'data: {"error":"NOT_FOUND: voice: \'x\' is unknown; known are a"}\n\n': 404,
    b'data: {"error":"INVALID_ARGUMENT: speed: 9 is not accepted; 0.5 to 2"}\n\n': 400,
    b'{"error":"speed: 9 is not accepted; 0.5 to 2"}': 400,
}


@pytest.mark.parametrize("body", ERRORS)
def test_model_s_own_error_by_generate_has_its_status(tmp_path, body):
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=400, body=body)

    async def check() -> None:
        async with (
            http_gateway(answer, tmp_path) as url,
            ClientSession() as client,
            client.post(f"{url}/generate_stream", json={"target_text": "a"}) as response,
        ):
            text = (await response.json())["error"]
            assert response.status == ERRORS[body]
        assert text in body.decode()
        assert not text.startswith(("data:", "UNAVAILABLE", "NOT_FOUND", "INVALID"))

    asyncio.run(check())
