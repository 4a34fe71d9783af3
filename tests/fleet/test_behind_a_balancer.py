"""What is asked of several servers together, through Envoy and by gRPC's own balancing."""

from __future__ import annotations

import urllib.error
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from cosyvoice_client import SpeechClient, SpeechRequest, UnavailableError
from cosyvoice_client.wire import infer_request
from drills import pieces
from drills.listeners import LONG, SHORT, TEXT, Listener, difference, listening
from drills.places import taken_places
from drills.speech_server import PLACES
from eventually import eventually

TIMEOUT_S = 60.0
UTTERANCES = 13
"""Texts of each way and each kind of fronts, a hundred in all."""


@pytest.mark.parametrize("way", pieces.WAYS)
def test_text_in_pieces_is_spoken_whole(fleet, fronts, plain_front, way):
    """Each utterance stays with the server that opened it."""
    for module in pieces.PACKAGES.get(way, ()):
        pytest.importorskip(module, reason="python3 scripts/environment.py --clients installs it")
    assert pieces.WAYS[way](fronts, UTTERANCES, plain_front).faults == []


def refused_call(url: str) -> grpc.RpcError:
    """The end of a call for speech that is answered with no message."""
    request = infer_request("cosyvoice2", SpeechRequest(SHORT).tensors(), "")
    with grpc.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answers = stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S)
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
    return caught.value


def test_a_full_server_refuses_by_the_status_of_grpc(fleet):
    server = fleet.servers[0]
    with taken_places(server.grpc_url, PLACES):
        refusal = refused_call(server.grpc_url)
    assert refusal.code() is grpc.StatusCode.UNAVAILABLE
    assert "4 utterances are in progress, the limit; try again in " in refusal.details()
    assert int(dict(refusal.trailing_metadata())["grpc-retry-pushback-ms"]) > 0


def test_a_full_server_refuses_http_with_503_and_a_time(fleet):
    server = fleet.servers[0]
    page = f"http://{server.http_url}/v2/models/cosyvoice2_offline/generate"
    body = b'{"target_text": "Hello world."}'
    with taken_places(server.grpc_url, PLACES), pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(page, body, method="POST"), timeout=TIMEOUT_S)
    assert caught.value.code == 503
    assert int(caught.value.headers["retry-after"]) > 0


def test_who_is_refused_by_a_full_server_is_served_by_another(fleet, fronts):
    """No balancer knows what others ask of the server that is full."""
    with (
        taken_places(fleet.servers[0].grpc_url, PLACES),
        listening(fronts, fleet.places - PLACES) as listeners,
    ):
        assert {listener.begin() for listener in listeners} == {200}
        assert fleet.speaking == [PLACES] * len(fleet.servers)


def test_a_front_that_knows_several_addresses_uses_all_of_them(fleet, round_robin):
    with listening(round_robin[:1], len(fleet.servers)) as listeners:
        assert {listener.begin() for listener in listeners} == {200}
        assert fleet.speaking == [1] * len(fleet.servers)


def test_a_request_has_one_name_with_the_front_the_balancer_and_its_server(fleet, behind_envoy):
    listener = Listener(behind_envoy[0], SHORT)
    assert listener.end() == 200
    name = listener.headers["x-request-id"]
    eventually(lambda: f"[{name}] POST /v1/audio/speech 200" in behind_envoy[0].told())
    eventually(lambda: [call["request_id"] for call in fleet.balancer.calls()].count(name) == 1)
    eventually(lambda: sum(server.requests().count(name) for server in fleet.servers) == 1)


def test_a_server_that_is_stopping_ends_its_streams_and_gets_no_new_ones(fleet, fronts):
    uncut = Listener(fronts[0], TEXT).whole
    server = fleet.servers[0]
    listeners = 2 * len(fleet.servers)
    # An utterance whose text doesn't end keeps the server from ending.
    with taken_places(server.grpc_url, 1), listening(fronts, listeners, TEXT) as heard:
        assert {listener.begin() for listener in heard} == {200}
        server.terminate()
        assert [Listener(front, SHORT).end() for front in [*fronts] * 3] == [200] * 6
        eventually(lambda: fleet.balancer.healthy == len(fleet.servers) - 1)
        refusal = refused_call(server.grpc_url)
        assert [difference(listener.whole, uncut) for listener in heard] == [None] * listeners
    server.join()
    assert refusal.code() is grpc.StatusCode.UNAVAILABLE
    assert refusal.details().startswith("the server is stopping")


def test_a_stream_whose_server_was_killed_is_lost_and_not_refused(fleet):
    with taken_places(fleet.balancer.grpc_url, 2):
        stream = SpeechClient(fleet.balancer.grpc_url).speak(SpeechRequest(LONG))
        next(stream)
        [server] = [each for each in fleet.servers if each.number("cosyvoice_lm_active_slots")]
        server.kill()
        with pytest.raises(UnavailableError):
            list(stream)


def test_a_request_that_was_not_answered_when_its_server_was_killed_is_answered_by_another(fleet, fronts):
    for server in fleet.servers:
        server.freeze()
    with listening(fronts, len(fleet.servers), SHORT) as listeners:
        fleet.servers[0].kill()
        for server in fleet.servers[1:]:
            server.thaw()
        assert [listener.end() for listener in listeners] == [200] * len(listeners)
