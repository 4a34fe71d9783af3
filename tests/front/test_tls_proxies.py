"""The samples of nginx and Caddy: TLS before both ports, through which audio leaves as it comes."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from websockets.sync.client import connect

from cosyvoice_runtime.settings import FrontSettings
from raw_http import ASKED
from tls_proxy import DEPLOY, TIMEOUT_S, TlsProxy, tls_proxy
from wire_client import WireClient

CHUNKS = 3


class Gated(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request of a stream as it comes.

    Attributes:
        clients: what the calls say of who asks.
    """

    def __init__(self) -> None:
        self.clients: list[str | None] = []

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        self.clients.append(dict(context.invocation_metadata() or ()).get("x-client-id"))
        async for request in requests:
            response = service_pb2.ModelInferResponse(id=request.id)
            yield service_pb2.ModelStreamInferResponse(infer_response=response)


@pytest.fixture
def triton() -> Iterator[tuple[Gated, int]]:
    """A gRPC server in a thread of its own, and its port."""
    servicer, started = Gated(), threading.Event()
    loop, ports = asyncio.new_event_loop(), []

    async def serve() -> None:
        server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        started.set()
        await stop.wait()
        await server.stop(None)

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(TIMEOUT_S)
    yield servicer, ports[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(TIMEOUT_S)
    loop.close()


@pytest.fixture(params=["nginx", "caddy"])
def proxy(request: Any, front: Any, triton: tuple[Gated, int], tmp_path: Path) -> Iterator[TlsProxy]:
    with tls_proxy(request.param, front.port, triton[1], tmp_path) as running:
        yield running


@pytest.fixture
def post(proxy: TlsProxy) -> Iterator[Callable[[bytes], http.client.HTTPResponse]]:
    connection = http.client.HTTPSConnection(
        "localhost", proxy.http, context=proxy.context, timeout=TIMEOUT_S
    )

    def post(body: bytes) -> http.client.HTTPResponse:
        connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
        return connection.getresponse()

    yield post
    connection.close()


def test_audio_leaves_the_proxy_as_it_comes(front, upstream, post):
    upstream.gates = asyncio.Semaphore(0)
    answer = post(json.dumps({**ASKED, "response_format": "pcm"}).encode())
    assert answer.status == 200
    first = answer.read(2 * len(upstream.chunks[0]))
    assert upstream.active == 1  # the second chunk waits, and the first has been heard
    front.do(lambda: upstream.gates.release())
    assert len(first) + len(answer.read()) == 2 * len(upstream.samples)


def test_client_that_leaves_the_proxy_leaves_the_front(front, upstream, proxy):
    upstream.gates = asyncio.Semaphore(0)
    body = json.dumps({**ASKED, "response_format": "pcm"}).encode()
    connection = http.client.HTTPSConnection(
        "localhost", proxy.http, context=proxy.context, timeout=TIMEOUT_S
    )
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    connection.getresponse().read(1)
    connection.sock.close()
    connection.close()
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)


def test_largest_body_that_the_front_takes_comes_through(post):
    most = FrontSettings().max_request_mib << 20
    body = json.dumps({**ASKED, "ignored": ""}).encode()
    body = body.replace(b'"ignored": ""', b'"ignored": "%b"' % (b"x" * (most - len(body))))
    assert len(body) == most
    assert post(body).status == 200


def test_websocket_speaks_through_the_proxy(proxy):
    url = f"wss://localhost:{proxy.http}/v1/audio/speech/stream"
    options = {"open_timeout": TIMEOUT_S, "proxy": None, "max_size": None, "ssl": proxy.context}
    with connect(url, **options) as connection:
        wire = WireClient(connection)
        wire.send({"type": "session.config", "response_format": "pcm"})
        wire.send({"type": "input.text", "text": "Hello. "}, {"type": "input.done"})
        messages = wire.until("session.done")
    assert any(isinstance(message, bytes) for message in messages)


def test_stream_of_grpc_goes_both_ways_at_once_and_names_nobody(proxy, triton):
    asked = []

    async def talk() -> list[str]:
        credentials = grpc.ssl_channel_credentials(proxy.certificate.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{proxy.grpc}", credentials) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stream = stub.ModelStreamInfer(metadata=[("x-client-id", "root")], timeout=TIMEOUT_S)
            for number in range(CHUNKS):
                await stream.write(service_pb2.ModelInferRequest(id=str(number)))
                asked.append((await stream.read()).infer_response.id)
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
        return asked

    assert asyncio.run(talk()) == ["0", "1", "2"]
    assert triton[0].clients in ([None], [""])


def test_samples_allow_more_than_the_front_does():
    settings = FrontSettings()
    nginx, caddy = ((DEPLOY / name).read_text("utf-8") for name in ("nginx.conf", "Caddyfile"))
    assert f"client_max_body_size {settings.max_request_mib + 1}m;" in nginx
    assert f"max_size {settings.max_request_mib + 1}MiB" in caddy
    silence_s = max(settings.idle_socket_timeout_s, settings.silence_timeout_s)
    assert f"proxy_read_timeout {silence_s + 10:.0f}s;" in nginx
    assert f"response_header_timeout {silence_s + 10:.0f}s" in caddy
    for line in ("keepalive_timeout 60s;", "keepalive 60s"):
        assert line in nginx + caddy
    assert settings.keep_alive_timeout_s > 60
