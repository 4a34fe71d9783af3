"""Proxies that the environment names are for servers on other machines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_client.address import is_here
from refusing_proxy import RefusingProxy, refusing_proxy

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = "192.0.2.1:8001"
"""Of nobody (RFC 5737)."""
ASK = """
import asyncio, sys
from cosyvoice_client import AsyncSpeechClient, ClientError

async def ask(url, **options):
    async with AsyncSpeechClient(url, **options) as client:
        try:
            await client.ready(1.0)
        except ClientError:
            pass

asyncio.run(ask(sys.argv[1], **eval(sys.argv[2])))
"""


@pytest.fixture
def proxy() -> Iterator[RefusingProxy]:
    with refusing_proxy() as running:
        yield running


def run(proxy: RefusingProxy, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | proxy.variables | variables
    line = [sys.executable, *map(str, command)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nobody_asks_a_proxy_for_a_server_on_this_machine(server, proxy, tmp_path, host):
    for port, program in ((server.grpc_url, "grpc_client.py"), (server.http_url, "http_client.py")):
        url = f"{host}:{port.rpartition(':')[2]}"
        to = ("--url", url, "--text", "id=1 chunks=2", "-o", tmp_path / "a.wav")
        done = run(proxy, ROOT / "client" / program, *to)
        assert (done.returncode, proxy.asked) == (0, []), done.stderr


def test_health_check_asks_no_proxy(server, proxy):
    port = server.grpc_url.rpartition(":")[2]
    done = run(proxy, ROOT / "scripts" / "health.py", COSYVOICE_SERVER__GRPC_PORT=port)
    assert (done.returncode, proxy.asked) == (0, []), done.stderr


@pytest.mark.parametrize(("options", "asked"), [({}, True), ({"proxy": False}, False)])
def test_a_clients_server_elsewhere_is_asked_for_by_a_proxy_unless_it_says_no(proxy, options, asked):
    run(proxy, "-c", ASK, ELSEWHERE, options)
    assert bool(proxy.asked) is asked
    assert {line.rpartition(" ")[0] for line in proxy.asked} <= {f"CONNECT {ELSEWHERE}"}


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1:8001", True),
        ("127.8.9.1:8001", True),
        ("0.0.0.0:8001", True),
        ("localhost:8001", True),
        ("LocalHost:8001", True),
        ("unix:/run/server", True),
        (ELSEWHERE, False),
        ("localhost.example.org:8001", False),
        ("127.0.0.1.example.org:8001", False),
        ("server:8001", False),
        ("[2001:db8::1]:8001", False),
    ],
)
def test_what_is_an_address_of_this_machine(address, here):
    assert is_here(address) is here
