"""What HTTP's gateway sends to the server behind it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, ClientTimeout, web
from hours import Hours
from yarl import URL

from cosyvoice_runtime.gateway.http_gateway import HEADER_LENGTH, HttpGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.progress import StartProgress
from cosyvoice_runtime.process.headers import CALL_HEADER, LEFT_HEADER, REQUEST_HEADER
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

MIB = 2**20
TIMEOUT_S = 30.0
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)


def test_server_is_asked_for_no_compression_and_gets_no_headers_but_five(tmp_path: Path):
    async def ask() -> web.BaseRequest:
        seen: list[web.BaseRequest] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            seen.append(request)
            return web.Response(body=b"\x1f\x8b\0\xff", headers={"Inference-Header-Content-Length": "1"})

        async with gateway_before(answer, tmp_path) as address:
            headers = {"triton_grpc_error": "true", "X-Client-Id": "me", "Content-Type": "application/json"}
            url = f"http://{address}/v2/models/m/infer"
            async with (
                ClientSession(headers=headers) as client,
                client.post(url, data=b'{"inputs": []}') as got,
            ):
                assert await got.read() == b"\x1f\x8b\0\xff"
                assert got.headers["Inference-Header-Content-Length"] == "1"
        return seen[0]

    names = {name.lower() for name in asyncio.run(ask()).headers}
    assert names - {"host", "accept", "user-agent", "content-length"} == {
        "content-type",
        "x-client-id",
        "x-call-id",
        "x-request-id",
    }


@asynccontextmanager
async def gateway_before(
    answer: Callable[..., Awaitable[web.StreamResponse]], folder: Path, **options: Any
) -> AsyncIterator[str]:
    """Address of a gateway in front of a server that answers so."""
    server = web.ServerRunner(web.Server(answer, handler_cancellation=True))
    await server.setup()
    await web.UnixSite(server, folder / "http").start()
    address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
    gateway = HttpGateway(GatewayOptions(address, str(folder / "http"), ("m",), MIB, MIB, **options))
    await gateway.start()
    yield address
    await gateway.close()
    await server.cleanup()


def test_answer_to_a_question_is_of_the_servers_type(tmp_path: Path):
    async def ask() -> dict[str, str]:
        async def answer(request: web.BaseRequest) -> web.Response:
            return web.json_response({"asked": str(request.rel_url)})

        async with (
            gateway_before(answer, tmp_path) as address,
            ClientSession() as client,
            client.get(f"http://{address}/v2/models/m") as got,
        ):
            return await got.json()

    assert asyncio.run(ask()) == {"asked": "/v2/models/m"}


def test_server_that_is_starting_tells_how_far_it_is(tmp_path: Path):
    progress = StartProgress(Metrics("token2wav", tmp_path), "captured", "calls", 54)
    ready = tmp_path / "ready"

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response()

    async def ask() -> list[tuple[int, str]]:
        got = []
        options = {"ready_file": str(ready), "shared": str(tmp_path)}
        async with gateway_before(answer, tmp_path, **options) as address, ClientSession() as client:
            for prepare in (lambda: None, progress, ready.touch):
                prepare()
                async with client.get(f"http://{address}/v2/health/ready") as told:
                    got.append((told.status, await told.text()))
        return got

    first, second, third = asyncio.run(ask())
    far = "the model is being started; try again later (token2wav: {} of 54 calls)"
    assert (first[0], json.loads(first[1])["error"]) == (400, far.format(0))
    assert (second[0], json.loads(second[1])["error"]) == (400, far.format(1))
    assert third == (200, "")


class FakeTriton:
    """Answers a call when it is told that its client has left.

    Attributes:
        streams: whether the answer begins before.
        begun, ended, cancelled: calls by their ids.
    """

    def __init__(self, streams: bool) -> None:
        self.streams = streams
        self.left: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.json()
        if LEFT_HEADER in request.headers:
            assert "target_text" in json.dumps(body)
            self.left[request.headers[LEFT_HEADER]].set()
            return web.json_response({})
        call = request.headers[CALL_HEADER]
        try:
            return await self.speak(request, call)
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise

    async def speak(self, request: web.BaseRequest, call: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self.begun.append(call)
        if self.streams:
            await response.prepare(request)
            await response.write(b"data: {}\n\n")
        await self.left[call].wait()
        if not self.streams:
            await response.prepare(request)
        await response.write(b"data: {}\n\n")
        await response.write_eof()
        self.ended.append(call)
        return response


@pytest.mark.parametrize(
    ("path", "streams"), [("infer", False), ("generate_stream", False), ("generate_stream", True)]
)
def test_model_is_told_that_the_client_has_left_and_nothing_is_cancelled(
    tmp_path: Path, path: str, streams: bool
):
    async def check() -> None:
        triton = FakeTriton(streams)
        async with (
            gateway_before(triton, tmp_path) as address,
            asyncio.timeout(TIMEOUT_S),
            ClientSession() as client,
        ):
            url = f"http://{address}/v2/models/m/{path}"
            asking = asyncio.create_task(read(client, url, {"inputs": []}))
            while not triton.begun:
                await asyncio.sleep(0.005)
            asking.cancel()
            while not triton.ended:
                await asyncio.sleep(0.005)
        assert (triton.ended, triton.cancelled) == (triton.begun, [])

    asyncio.run(check())


def test_unary_calls_go_to_the_model_that_answers_once_and_streams_do_not(tmp_path: Path):
    async def check() -> None:
        seen: list[str] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            seen.append(request.path)
            return web.Response(body=b'{"model_name":"m_offline"}xyz', headers={HEADER_LENGTH: "26"})

        async with (
            gateway_before(answer, tmp_path, whole_models={"m": "m_offline"}) as address,
            ClientSession() as client,
        ):
            for path in ("m/infer", "m/versions/3/infer", "m/generate", "m/generate_stream", "%6D/infer"):
                url = URL(f"http://{address}/v2/models/{path}", encoded=True)
                async with client.post(url, data=b"{}") as got:
                    streamed = path.endswith("stream")
                    name = "m_offline" if streamed else "m"
                    assert await got.read() == b'{"model_name":"%b"}xyz' % name.encode()
                    assert got.headers[HEADER_LENGTH] == ("26" if streamed else "18")
        assert seen == [
            "/v2/models/m_offline/infer",
            "/v2/models/m_offline/versions/3/infer",
            "/v2/models/m_offline/generate",
            "/v2/models/m/generate_stream",
            "/v2/models/m_offline/infer",
        ]

    asyncio.run(check())


async def read(client: ClientSession, url: str, body: dict[str, object]) -> None:
    async with client.post(url, json=body) as response:
        await response.read()


def test_who_asks_is_said_in_the_body_where_the_server_hands_on_no_headers(tmp_path: Path):
    async def ask() -> dict[str, object]:
        seen: list[dict[str, object]] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            seen.append(await request.json())
            return web.Response(body=b"data: {}\n\n")

        body = {"target_text": "Hello.", "speed": 1.1, CALL_HEADER: "mine"}
        async with gateway_before(answer, tmp_path) as address, ClientSession() as client:
            url = f"http://{address}/v2/models/m/generate_stream"
            async with client.post(url, json=body, headers={"X-Client-Id": "me"}) as response:
                await response.read()
                assert response.headers[REQUEST_HEADER] == seen[0][REQUEST_HEADER]
        return seen[0]

    said = asyncio.run(ask())
    assert len(said.pop(CALL_HEADER)) == 32
    assert len(said.pop(REQUEST_HEADER)) == 36
    assert said == {"target_text": "Hello.", "speed": 1.1, "x-client-id": "me"}


@pytest.mark.parametrize("length", ["9" * 5000, "12a", "-1", "", "\u0663"])
def test_length_of_the_json_part_that_is_no_length_is_refused(tmp_path: Path, length: str):
    async def ask() -> tuple[int, str]:
        async def answer(request: web.BaseRequest) -> web.Response:
            return web.Response()

        async with gateway_before(answer, tmp_path) as address, ClientSession() as client:
            url, headers = f"http://{address}/v2/models/m/infer", {"Inference-Header-Content-Length": length}
            async with client.post(url, data=b'{"inputs": []}', headers=headers) as response:
                return response.status, (await response.json())["error"]

    status, error = asyncio.run(ask())
    assert status == 400
    assert error.startswith("Inference-Header-Content-Length: ")
    assert error.endswith("is not accepted; a number of 1 to 10 digits is expected")
    assert len(error) < 200


def test_large_request_for_which_there_is_no_room_is_told_when_there_will_be(tmp_path: Path):
    async def check() -> None:
        seen, go_on = asyncio.Event(), asyncio.Event()

        async def answer(_: web.BaseRequest) -> web.Response:
            seen.set()
            await go_on.wait()
            return web.json_response({})

        async with gateway_before(answer, tmp_path) as address, ClientSession() as client:
            url, body = f"http://{address}/v2/models/m/infer", json.dumps({"id": "x", "x": "a" * 200_000})
            padded = body + " " * (MIB - len(body))
            first = asyncio.create_task(client.post(url, data=padded))
            await seen.wait()
            async with client.post(url, data=padded) as refused:
                assert refused.status == 503
                assert refused.headers["Retry-After"] == "2"
                error = (await refused.json())["error"]
                assert error == "too many large requests at once; try again in 2 s"
            go_on.set()
            async with await first, client.post(url, data=padded) as second:
                assert second.status == 200

    asyncio.run(check())


def test_client_that_reads_nothing_is_given_up_and_one_that_reads_slowly_beside_it_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    events, event = 200, b"data: " + bytes(2**16) + b"\n\n"
    ended: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if LEFT_HEADER in request.headers:
            return web.json_response({})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(events):
            await response.write(event)
        ended.append((await request.json())["target_text"])
        return response

    async def check() -> None:
        async with (
            gateway_before(answer, tmp_path, stalled_client_timeout_s=60.0) as address,
            ClientSession(timeout=ClientTimeout()) as client,
        ):
            url = f"http://{address}/v2/models/m/generate_stream"
            stalled = await client.post(url, json={"target_text": "stalled"})
            slow = await client.post(url, json={"target_text": "slow"})
            hours, left = Hours(), events * len(event)
            while left:
                await hours.pass_by(1.5)
                left -= len(await slow.content.read(2**16))
            for _ in range(1000):
                await hours.pass_by(30.0)
                if len(ended) == 2:
                    break
            assert sorted(ended) == ["slow", "stalled"]
            with pytest.raises(ClientPayloadError):
                await stalled.read()

    asyncio.run(check())
    assert caplog.text.count("is given up: it did not take") == 1
