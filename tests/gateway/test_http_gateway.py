"""What HTTP's gateway sends to the server behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import ClientSession, web

from cosyvoice_runtime.gateway.http_gateway import HttpGateway
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.server_ports import ServerPorts

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)


def test_server_is_asked_for_no_compression_and_gets_no_headers_but_three(tmp_path: Path):
    async def ask() -> web.BaseRequest:
        seen: list[web.BaseRequest] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            seen.append(request)
            return web.Response(body=b"\x1f\x8b\0\xff", headers={"Inference-Header-Content-Length": "1"})

        server = web.ServerRunner(web.Server(answer))
        await server.setup()
        await web.UnixSite(server, tmp_path / "http").start()
        address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
        gateway = HttpGateway(GatewayOptions(address, str(tmp_path / "http"), ("m",), MIB, MIB))
        await gateway.start()
        headers = {"triton_grpc_error": "true", "X-Client-Id": "me", "Content-Type": "application/json"}
        url = f"http://{address}/v2/models/m/infer"
        async with ClientSession(headers=headers) as client, client.post(url, data=b'{"inputs": []}') as got:
            assert await got.read() == b"\x1f\x8b\0\xff"
            assert got.headers["Inference-Header-Content-Length"] == "1"
        await gateway.close()
        await server.cleanup()
        return seen[0]

    names = {name.lower() for name in asyncio.run(ask()).headers}
    assert names - {"host", "accept", "user-agent", "content-length"} == {"content-type", "x-client-id"}
