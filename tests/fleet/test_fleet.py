"""The fleet itself: its programs come back where they were, whatever happens to them."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import pytest

from cosyvoice_client import SpeechClient, SpeechRequest
from drills.speech_server import PLACES
from eventually import eventually

LONG = SpeechRequest("word " * 200, seed=7)
"""More than a minute of speech, which nobody hears to its end."""


@pytest.mark.parametrize("name", ["redis", "bucket", "balancer"])
def test_program_that_is_stopped_killed_or_frozen_answers_again(fleet, name):
    program = getattr(fleet, name)
    program.restart()
    program.kill()
    assert not program.answers()
    program.start()
    program.freeze()
    program.thaw()
    assert program.answers()


def test_a_frozen_server_takes_connections_and_says_nothing(fleet):
    server = fleet.servers[0]
    server.freeze()
    host, port = server.http_url.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(0.5)
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        eventually(lambda: fleet.balancer.healthy == len(fleet.servers) - 1)
        server.thaw()
        connection.settimeout(60)
        assert connection.recv(64).startswith(b"HTTP/1.1 200")
    eventually(lambda: fleet.balancer.healthy == len(fleet.servers))


def test_the_balancer_spreads_listeners_over_the_servers(fleet):
    assert fleet.places == PLACES * len(fleet.servers)
    with ExitStack() as stack:
        for _ in range(fleet.places):
            stream = stack.enter_context(closing(SpeechClient(fleet.balancer.grpc_url).speak(LONG)))
            next(stream)
        assert fleet.speaking == [PLACES] * len(fleet.servers)
    eventually(lambda: {each["server"] for each in fleet.balancer.calls()} >= {*fleet.addresses})
