"""When a server says that it takes requests: by HTTP, by Triton's own call, and by gRPC's health service."""

from __future__ import annotations

from http.client import HTTPConnection

import grpc
import tritonclient.grpc

from cosyvoice_runtime.gateway.policy import HEALTH_CHECK
from cosyvoice_runtime.supervisor import Server

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
TIMEOUT_S = 60.0


def readiness(server: Server) -> tuple[int, bool, bytes]:
    """Its three answers."""
    connection = HTTPConnection(server.http_url, timeout=TIMEOUT_S)
    connection.request("GET", "/v2/health/ready")
    status = connection.getresponse().status
    connection.close()
    with grpc.insecure_channel(server.grpc_url) as channel:
        state = channel.unary_unary(HEALTH_CHECK)(b"", timeout=TIMEOUT_S)
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        return status, client.is_server_ready(), state


def test_server_is_ready_when_all_models_have_answered_and_not_before(repository, settings):
    """All are loaded when they are asked for the first time, so that Triton itself is ready."""
    meanwhile = {}
    probes = {}
    server = Server(repository, settings, probes)
    for model in ("count", "chain"):
        probes[model] = lambda _url, _timeout_s, model=model: meanwhile.update({model: readiness(server)})
    with server:
        assert readiness(server) == (200, True, SERVING)
    assert meanwhile == dict.fromkeys(("count", "chain"), (400, False, NOT_SERVING))


def test_server_that_is_started_again_has_to_become_ready_again(repository, settings):
    asked = []
    server = Server(repository, settings, {"chain": lambda *_: asked.append(readiness(server)[0])})
    for _ in range(2):
        with server:
            assert readiness(server)[0] == 200
    assert asked == [400, 400]
