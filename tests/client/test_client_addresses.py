"""Addresses of a gRPC port, as people write them."""

from __future__ import annotations

import pytest

from cosyvoice_client import AsyncSpeechClient, InvalidArgumentError, SpeechClient
from cosyvoice_client.address import grpc_address
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import Settings

SURE = [
    ("127.0.0.1:8001", "127.0.0.1:8001"),
    ("server:8001", "server:8001"),
    ("http://server:8001", "server:8001"),
    ("HTTP://server:8001/", "server:8001"),
    ("grpc://server:8001", "server:8001"),
    ("dns:///server.speech.svc:8001", "dns:///server.speech.svc:8001"),
    ("http://a:8001/,b:8001", "a:8001,b:8001"),
    ("10.0.0.1:8001, 10.0.0.2:8001", "10.0.0.1:8001,10.0.0.2:8001"),
    ("[::1]:8001", "[::1]:8001"),
    ("http://[::1]:8001/", "[::1]:8001"),
    ("unix:/run/envoy.sock", "unix:/run/envoy.sock"),
    ("unix:///run/envoy.sock", "unix:///run/envoy.sock"),
]
UNSURE = [
    "server",
    "8001",
    ":8001",
    "server:",
    "server:port",
    "server:0",
    "server:65536",
    "https://server:8001",
    "grpcs://server:8001",
    "http://server",
    "http://server:8001/v2",
    "http://user:word@server:8001",
    "::1:8001",
    "[::1]",
    "[1:2]:8001",
    "unix:socket",
    "server:8001 other:8001",
    "server:8001,",
    "server:8001,other",
    "dns:///server:8001,other:8001",
    "unix:/run/a,unix:/run/b:8001",
    "",
]


@pytest.mark.parametrize(("written", "meant"), SURE)
def test_an_address_whose_meaning_is_sure_is_taken(written, meant):
    assert grpc_address(written) == SpeechClient(written).url == meant
    settings = Settings.read([f"front.grpc_url={written}"])
    assert settings.front.grpc_url == meant


@pytest.mark.parametrize("written", UNSURE)
def test_any_other_is_refused_with_what_is_expected(written):
    for client in (SpeechClient, AsyncSpeechClient):
        with pytest.raises(InvalidArgumentError, match=r": host:port, .*unix:/path is expected"):
            client(written)
    with pytest.raises(InvalidInput, match=r"front\.grpc_url: .*host:port, .*unix:/path"):
        Settings.read([f"front.grpc_url={written}"])
