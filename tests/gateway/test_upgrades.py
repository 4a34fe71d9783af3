"""Clients of HTTP that offer HTTP/2, or speak HTTP/1.0: one request is one answer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from test_http_gateway import gateway_before

BODY = b'{"inputs": []}'
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
UPGRADES = {
    "Java": H2C + b"AAEAAEAAAAIAAAABAAMAAABk\r\n",
    "curl": H2C + b"AAMAAABkAAQAoAAAAAIAAAAA\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "several": b"Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n",
    "none": b"",
}
TIMEOUT_S = 60.0


class Seen:
    """A server that answers in two parts, and remembers what reached it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.path, await request.read()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await response.write(b"data: 2\n\n")
        return response


@asynccontextmanager
async def connected(
    folder: Path, seen: Seen
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with gateway_before(seen, folder) as address, asyncio.timeout(TIMEOUT_S):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        yield reader, writer
        writer.close()


def head(call: str, upgrade: str, version: str = "1.1", length: bytes = b"Content-Length: 14\r\n") -> bytes:
    line = f"POST /v2/models/m/{call} HTTP/{version}\r\nHost: x\r\n".encode()
    return line + UPGRADES[upgrade] + length + b"\r\n"


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("call", ["infer", "generate_stream"])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_upgrade_is_ignored_and_the_body_belongs_to_its_request(tmp_path, upgrade, call, pieces):
    async def check() -> None:
        seen = Seen()
        async with connected(tmp_path, seen) as (reader, writer):
            for _ in range(3):
                whole = [head(call, upgrade), BODY[:5], BODY[5:]]
                for piece in (b"".join(whole[: 4 - pieces]), *whole[4 - pieces :]):
                    writer.write(piece)
                    await asyncio.sleep(0.01)
                answer = await reader.readuntil(b"\r\n0\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
                assert answer.count(b"data: ") == 2
            writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        paths = [path for path, _ in seen.requests]
        assert paths == [f"/v2/models/m/{call}"] * 3 + ["/v2/health/live"]
        if call == "infer":
            assert [body for _, body in seen.requests] == [BODY] * 3 + [b""]

    asyncio.run(check())


def test_body_in_chunks_is_read_beside_an_upgrade_too(tmp_path):
    async def check() -> None:
        seen = Seen()
        async with connected(tmp_path, seen) as (reader, writer):
            for _ in range(2):
                chunked = head("infer", "Java", length=b"Transfer-Encoding: chunked\r\n")
                writer.write(chunked + b"e\r\n" + BODY + b"\r\n0\r\n\r\n")
                assert (await reader.readuntil(b"\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert [body for _, body in seen.requests] == [BODY] * 2

    asyncio.run(check())


@pytest.mark.parametrize("call", ["infer", "generate_stream"])
def test_http_1_0_gets_a_body_until_the_connection_closes(tmp_path, call):
    async def check() -> bytes:
        async with connected(tmp_path, Seen()) as (reader, writer):
            writer.write(head(call, "none", "1.0") + BODY)
            return await reader.read()

    start, _, body = asyncio.run(check()).partition(b"\r\n\r\n")
    assert b"ransfer-" not in start
    assert b" 200 " in start.splitlines()[0]
    assert body == b"data: 1\n\ndata: 2\n\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_that_offers_http_2_is_answered(tmp_path):
    async def check() -> bytes:
        async with gateway_before(Seen(), tmp_path) as address:
            command = ["curl", "-s", "--http2", "-d", BODY, f"http://{address}/v2/models/m/infer"]
            curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            return (await curl.communicate())[0]

    assert asyncio.run(check()) == b"data: 1\n\ndata: 2\n\n"
