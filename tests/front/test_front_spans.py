"""The spans of requests to the front."""

from __future__ import annotations

import json
import logging
import socket
import urllib.error
import urllib.request

import pytest
from websockets.sync.client import connect

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: requirements/front.in")

from cosyvoice_client import RefusedError, UnavailableError
from cosyvoice_front.audit import begin_call
from cosyvoice_front.command import main
from cosyvoice_front.keys import digest
from cosyvoice_front.spans import RequestSpan
from cosyvoice_front.spoken import Tally
from cosyvoice_runtime.process.spans import FRONT, open_spans
from eventually import eventually
from fake_upstream import FakeUpstream
from front_server import running_front
from otlp_receiver import told_receiver, variables

TRACE, PARENT = "a" * 32, "b" * 16
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
KEY, TEXT = "sk-secret", "Words that nobody else should read."
BODY = {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": "pcm"}


@pytest.fixture
def receiver(monkeypatch):
    with told_receiver(monkeypatch) as opened:
        yield opened


@pytest.fixture
def upstream():
    return FakeUpstream()


@pytest.fixture
def front(receiver, upstream, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text(f"anna sha256:{digest(KEY)}")
    with running_front(upstream, api_keys_file=keys) as running:
        yield running


def post(front, key=KEY, body=BODY, **headers: str) -> int:
    """The status of a request for speech, which has been read to its end."""
    headers |= {"authorization": f"Bearer {key}", "content-type": "application/json"}
    asked = urllib.request.Request(f"{front.url}/v1/audio/speech", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def only_span(receiver, front):
    front.stop()
    [span] = receiver.spans
    return span


def test_a_request_is_a_span_of_its_clients_trace(receiver, front):
    assert post(front, **HEADERS, **{"x-request-id": "one"}) == 200
    span = only_span(receiver, front)
    assert (span.name, span.service) == ("POST /v1/audio/speech", FRONT)
    assert (span.trace, span.parent) == (TRACE, PARENT)
    owner = span.said.pop("cosyvoice.owner")
    assert len(owner) == 16
    assert span.said == {
        "cosyvoice.request_id": "one",
        "cosyvoice.voice": "default",
        "cosyvoice.characters": len(TEXT),
        "cosyvoice.format": "pcm",
        "cosyvoice.seconds": 0.8,
        "cosyvoice.status": 200,
        "cosyvoice.ending": "ok",
    }
    assert [name for name, _ in span.events] == ["first audio"]
    assert not [each for each in (TEXT, KEY, "anna") if each in span.whole]


@pytest.mark.parametrize(
    ("error", "after", "status", "ending"),
    [(UnavailableError("full"), 0, 503, "refused"), (RuntimeError("secret"), 0, 500, "error")],
)
def test_a_span_says_how_its_request_ends(receiver, front, upstream, error, after, status, ending):
    upstream.error, upstream.error_after = error, after
    assert post(front) == status
    span = only_span(receiver, front)
    assert (span.said["cosyvoice.ending"], span.said["cosyvoice.status"]) == (ending, status)
    assert (span.failed, span.parent) == (ending == "error", "")


@pytest.mark.parametrize(("text", "status"), [(TEXT, 404), ("...", 200)])
def test_what_is_asked_for_as_a_voice_is_in_no_span_until_it_speaks(receiver, front, upstream, text, status):
    upstream.error = RefusedError("voice: 'a secret' is not accepted", "invalid_argument")
    assert post(front, body=BODY | {"voice": "a secret", "input": text}) == status
    span = only_span(receiver, front)
    assert span.said["cosyvoice.status"] == status
    assert "a secret" not in span.whole


def test_what_asks_for_no_key_has_no_span(receiver, front):
    with urllib.request.urlopen(f"{front.url}/health") as page:
        assert page.status == 200
    assert post(front, key="unknown") == 401
    span = only_span(receiver, front)
    assert (span.said["cosyvoice.status"], span.said["cosyvoice.ending"]) == (401, "refused")


def test_each_utterance_of_a_websocket_is_a_span(receiver, front):
    url = f"ws://127.0.0.1:{front.port}/v1/audio/speech/stream?api_key={KEY}"
    with connect(url, additional_headers=HEADERS) as socket:
        socket.send(json.dumps({"type": "session.config", "model": "tts-1", "response_format": "pcm"}))
        for _ in range(2):
            for message in ({"type": "input.text", "text": TEXT}, {"type": "input.done"}):
                socket.send(json.dumps(message))
            while (
                json.loads(next(each for each in socket if isinstance(each, str)))["type"] != "session.done"
            ):
                pass
    front.stop()
    assert [(span.name, span.parent) for span in receiver.spans] == [
        ("WS /v1/audio/speech/stream", PARENT)
    ] * 2
    assert {span.said["cosyvoice.characters"] for span in receiver.spans} == {len(TEXT)}


def test_speech_does_not_wait_for_a_receiver_that_is_away(upstream, monkeypatch, caplog):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    for name, value in {**variables(address), "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"}.items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.INFO)
    with running_front(upstream) as front:
        for _ in range(3):  # each of which is lost
            assert post(front) == 200
            eventually(lambda: warnings(caplog))
    assert warnings(caplog) == [
        "the receiver of OTEL_EXPORTER_OTLP_ENDPOINT takes no spans: they are lost until it does"
    ]


def warnings(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_address_that_can_not_be_one_stops_a_start(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector/4317")
    assert main([]) == 2
    assert "OTEL_EXPORTER_OTLP_ENDPOINT: 'collector/4317' is not accepted" in caplog.text


@pytest.mark.parametrize(("headers", "told"), [(HEADERS, HEADERS), ({}, {}), ({"traceparent": "no"}, {})])
def test_without_spans_the_trace_goes_on_as_it_came(headers, told):
    def speak(request, request_id="", name=None):
        begin_call(said)
        return FakeUpstream.speak(upstream, request, request_id, name)

    said, upstream = dict[str, str](), FakeUpstream()
    upstream.speak = speak
    with running_front(upstream) as front:
        assert post(front, **headers) == 200
    assert said == told


def test_a_further_call_is_linked_with_the_one_before(receiver):
    spans, tally = open_spans(FRONT), Tally()
    request = RequestSpan(spans, HEADERS)
    told = [dict[str, str]() for _ in range(3)]
    for headers, heard in zip(told, [0, 0, 24_000], strict=True):
        request.call(headers, heard)
    request.hears(tally)
    request.end("POST /", None, "ok")
    spans.close()
    *calls, whole = receiver.spans
    assert [call.parent for call in calls] == [whole.id] * 3
    assert [headers["traceparent"].split("-")[2] for headers in told] == [call.id for call in calls]
    assert [call.said["cosyvoice.ending"] for call in calls] == ["asked_elsewhere", "lost", "ok"]
    links = [call.links for call in calls]
    assert links == [
        [],
        [(calls[0].id, {"cosyvoice.why": "retry"})],
        [(calls[1].id, {"cosyvoice.why": "resume"})],
    ]
