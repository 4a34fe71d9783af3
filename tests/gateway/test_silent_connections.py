"""Connections that say nothing, or half of something, at both gateways, and others beside them."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from aiohttp import web
from gateway_process import Gateway, gateway_process
from test_http_gateway import gateway_before

from cosyvoice_runtime.gateway.connections import Connections
from cosyvoice_runtime.gateway.limits import RESERVED
from cosyvoice_runtime.gateway.policy import SERVICE

TIMEOUT_S = 60.0
LIMIT_S = 1.0
FEW_FILES = RESERVED + 64
KIB = 2**10
HEALTH = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
SILENCES = {"silent": b"", "half a line": HEALTH[:10], "half a head": HEALTH[:-2], "TLS": b"\x16\x03\x01\0"}


async def answer_all(_: web.BaseRequest) -> web.Response:
    return web.json_response({})


async def opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def test_connection_whose_headers_do_not_come_is_closed_and_one_that_has_asked_is_kept(tmp_path):
    async def check(address: str, said: bytes) -> None:
        asked, used = await opened(address)
        for _ in range(2):
            used.write(HEALTH)
            assert b" 200 " in await asked.readline()
            await asked.readuntil(b"{}")
            reader, writer = await opened(address)
            writer.write(said)
            assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
            writer.close()
        used.write(said or b"\r\n")  # the next request comes in half, too
        assert await asyncio.wait_for(asked.read(), TIMEOUT_S) == b""
        used.close()

    async def check_all() -> None:
        async with gateway_before(answer_all, tmp_path, arrival_timeout_s=LIMIT_S) as address:
            kinds = ("silent", "half a line", "half a head")
            await asyncio.gather(*(check(address, SILENCES[kind]) for kind in kinds))

    asyncio.run(check_all())


def test_headers_byte_by_byte_have_no_more_time(tmp_path):
    async def check() -> None:
        async with gateway_before(answer_all, tmp_path, arrival_timeout_s=LIMIT_S) as address:
            reader, writer = await opened(address)
            writer.write(b"GET /")
            closed = asyncio.create_task(reader.read())
            while not closed.done():
                writer.write(b"v")
                await asyncio.wait([closed], timeout=LIMIT_S / 10)
            assert closed.result() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(check(), TIMEOUT_S))


@contextmanager
def connections(gateway: Gateway, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        silent = []
        for _ in range(count):
            silent.append(stack.enter_context(socket.create_connection(gateway.place, TIMEOUT_S)))
            silent[-1].sendall(said)
        yield silent


def health_status(gateway: Gateway) -> int:
    connection = http.client.HTTPConnection(gateway.address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["silent", "half a line"])
def test_more_silent_connections_than_files_stop_nobody_and_fill_no_log(tmp_path, kind):
    with (
        gateway_process("http", tmp_path, FEW_FILES) as gateway,
        connections(gateway, 2 * FEW_FILES, SILENCES[kind]),
    ):
        for _ in range(3):
            assert health_status(gateway) == 503  # of the gateway, which has no server
    log = gateway.log.read_text()
    assert log.count("connections are open, the limit") == 1
    assert len(log) < 4 * KIB


def test_who_never_asked_makes_room_before_one_that_has(tmp_path):
    with gateway_process("http", tmp_path, FEW_FILES) as gateway:
        kept = http.client.HTTPConnection(gateway.address, timeout=TIMEOUT_S)
        kept.request("GET", "/v2/health/live")
        kept.getresponse().read()
        with connections(gateway, FEW_FILES, b""):
            assert health_status(gateway) == 503
            assert kept.sock is not None
            kept.request("GET", "/v2/health/live")
            assert kept.getresponse().status == 503
        kept.close()


def test_one_connection_above_the_limit_closes_the_one_that_has_been_silent_for_longest():
    async def check() -> None:
        loop = asyncio.get_running_loop()
        limited = Connections(web.Server(answer_all), 2, arrival_timeout_s=600.0)
        async with await loop.create_server(limited, "127.0.0.1", 0) as listening:
            host, port = listening.sockets[0].getsockname()
            opened_ones = [await asyncio.open_connection(host, port) for _ in range(3)]
            assert await asyncio.wait_for(opened_ones[0][0].read(), TIMEOUT_S) == b""
            for reader, writer in opened_ones[1:]:
                writer.write(HEALTH)
                assert b" 200 " in await asyncio.wait_for(reader.readline(), TIMEOUT_S)
            for _, writer in opened_ones:
                writer.close()

    asyncio.run(check())


def test_bytes_that_are_no_http_fill_no_log(tmp_path):
    with gateway_process("http", tmp_path) as gateway:
        for said in (SILENCES["TLS"], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
            with connections(gateway, 1, said) as [silent]:
                assert b" 400 " in silent.recv(64 * KIB).splitlines()[0]
        assert health_status(gateway) == 503
    assert "Traceback" not in gateway.log.read_text()


def server_is_live(gateway: Gateway) -> str:
    with grpc.insecure_channel(gateway.address) as channel:
        ask = channel.unary_unary(f"{SERVICE}/ServerLive")
        with pytest.raises(grpc.RpcError) as caught:
            ask(b"", timeout=TIMEOUT_S, wait_for_ready=True)
    return str(caught.value.code().name)


def test_grpc_closes_a_connection_that_never_begins(tmp_path):
    with gateway_process("grpc", tmp_path, arrival_timeout_s=LIMIT_S) as gateway:
        for said in (b"", b"PRI * HTTP/2.0\r\n\r\n"):
            with connections(gateway, 1, said) as [silent]:
                while silent.recv(KIB):
                    continue
        assert server_is_live(gateway) == "UNAVAILABLE"


def test_more_silent_connections_than_files_stop_grpc_only_until_their_time_is_up(tmp_path):
    with (
        gateway_process("grpc", tmp_path, FEW_FILES, arrival_timeout_s=LIMIT_S) as gateway,
        connections(gateway, 2 * FEW_FILES, b""),
    ):
        began = time.monotonic()
        assert server_is_live(gateway) == "UNAVAILABLE"
        assert time.monotonic() - began < TIMEOUT_S
    assert len(gateway.log.read_bytes()) < 16 * KIB
