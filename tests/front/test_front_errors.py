"""Errors as OpenAI's clients know them: each names what is wrong, to the one who sent it alone."""

from __future__ import annotations

import http.client
import json
import socket

import openai
import pytest

from cosyvoice_client import RefusedError, ServerTimeoutError, UnavailableError
from decoded import events
from fake_upstream import FakeUpstream
from front_server import running_front
from raw_http import ASKED, ask, send

PLACE = FakeUpstream.url


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"input": "\\ud800"}',
        b"[" * 1000,
        b'{"speed": NaN}',
    ],
    ids=["nothing", "broken", "list", "null", "text", "no utf-8", "half a character", "deep", "no number"],
)
def test_body_that_is_no_object(front, body):
    answer = send(front, body=body)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", None),
        ("model", 5),
        ("input", None),
        ("input", ""),
        ("input", "\x00 \x1b[0m"),
        ("input", " \n\t"),
        ("input", 5),
        ("input", ["Hello."]),
        ("input", "a" * 4097),
        ("voice", 5),
        ("voice", {"name": "alloy"}),
        ("voice", {"id": 5}),
        ("instructions", 5),
        ("instructions", "a" * 4097),
        ("response_format", "midi"),
        ("response_format", 5),
        ("stream_format", "websocket"),
        ("speed", "fast"),
        ("speed", True),
        ("speed", 0.25),
        ("speed", 4),
        ("speed", 10**400),
        ("speed", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.5),
        ("sample_rate", 11),
        ("sample_rate", "24000"),
        ("language", 5),
        ("ref_text", "without ref_audio"),
        ("ref_audio", 5),
        ("ref_audio", "no base64!"),
        ("ref_audio", "data:audio/wav,plain"),
        ("ref_audio", "data:audio/wav;base64"),
        ("ref_audio", "https://example.com/voice.wav"),
        ("ref_audio", "file:///etc/passwd"),
        ("ref_audio", "aGVsbG8="),
    ],
)
def test_field_at_fault_is_named(front, upstream, field, value):
    answer = ask(front, **{field: value})
    assert answer.status == 400
    assert (answer.error["type"], answer.error["param"]) == ("invalid_request_error", field)
    assert field in answer.error["message"]
    assert upstream.requests == []


def test_rate_that_a_format_does_not_have_is_refused(front):
    assert ask(front, response_format="opus", sample_rate=22_050).error["param"] == "sample_rate"
    assert ask(front, response_format="mp3", sample_rate=22_050).status == 200


def test_unknown_model_is_not_found(front):
    answer = ask(front, model="gpt-9")
    assert answer.status == 404
    assert (answer.error["code"], answer.error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/audio/speeches"), ("GET", "/readyz")])
def test_unknown_page_is_not_found(front, method, path):
    answer = send(front, method, path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")


def test_wrong_method_is_refused(front):
    answer = send(front, "GET")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (
            RefusedError(f"{PLACE}: voice: 'x' is not accepted; expected a key", "invalid_argument"),
            404,
            "invalid_request_error",
            "voice",
            "voice_not_found",
        ),
        (
            RefusedError(f"{PLACE}: language: 'xx' is not accepted; expected zh", "invalid_argument"),
            400,
            "invalid_request_error",
            "language",
            None,
        ),
        (
            RefusedError(f"{PLACE}: verify: 'retry' is not accepted; off: engine vllm", "invalid_argument"),
            400,
            "invalid_request_error",
            "verify",
            None,
        ),
        (
            RefusedError(f"{PLACE}: reference_wav: silence is not accepted; speak", "invalid_argument"),
            400,
            "invalid_request_error",
            "ref_audio",
            None,
        ),
        (RefusedError(f"{PLACE}: secret path", "internal"), 500, "server_error", None, "internal_error"),
        (
            UnavailableError(f"{PLACE}: 64 utterances are in progress"),
            503,
            "server_error",
            None,
            "overloaded",
        ),
        (ServerTimeoutError(f"{PLACE}: nothing came for 60 s"), 504, "server_error", None, "timeout"),
        (ZeroDivisionError("secret path"), 500, "server_error", None, "internal_error"),
    ],
)
def test_what_the_server_reports_before_the_first_audio(front, upstream, error, status, kind, param, code):
    upstream.error = error
    for stream_format in ("audio", "sse"):
        answer = ask(front, stream_format=stream_format)
        assert answer.status == status
        assert (answer.error["type"], answer.error["param"], answer.error["code"]) == (kind, param, code)
        assert PLACE not in answer.error["message"]
        assert "secret" not in answer.error["message"]


@pytest.mark.parametrize("error", [UnavailableError("full"), ServerTimeoutError("silent")])
def test_what_may_be_tried_again_says_when(front, upstream, error):
    upstream.error = error
    answer = ask(front)
    assert (answer.headers["retry-after-ms"], answer.headers["retry-after"]) == ("1000", "1")


@pytest.mark.parametrize(
    ("told", "milliseconds", "seconds"), [("2.5", "2500", "3"), ("0.1", "100", "1"), ("17", "17000", "17")]
)
def test_turn_that_the_server_gives_is_told(front, upstream, told, milliseconds, seconds):
    upstream.error = UnavailableError(f"{PLACE}: 2 utterances are in progress; try again in {told} s")
    answer = ask(front)
    assert (answer.headers["retry-after-ms"], answer.headers["retry-after"]) == (milliseconds, seconds)


def test_server_that_does_not_answer_is_not_ready(front, upstream):
    upstream.error = UnavailableError("no connection")
    assert send(front, "GET", "/health/ready").status == 503
    assert send(front, "GET", "/health").status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "inner-name.invalid"])
def test_inner_addresses_stay_inside_while_the_server_is_away(caplog, host):
    with socket.socket() as unused, running_front(grpc_url=f"{host}:{_port(unused)}") as front:
        for answer in (send(front, "GET", "/health/ready"), ask(front)):
            assert (answer.status, answer.error["code"]) == (503, "overloaded")
            assert answer.error["message"] == "The speech server is away; try again later."
            assert answer.headers["retry-after"] == "1"
    assert host in caplog.text


def _port(unused: socket.socket) -> int:
    """A port on which nobody listens while the socket is open."""
    unused.bind(("127.0.0.1", 0))
    return unused.getsockname()[1]


def test_server_that_can_t_speak_yet_is_not_ready(front, upstream):
    upstream.is_ready = False
    answer = send(front, "GET", "/health/ready")
    assert (answer.status, answer.error["code"]) == (503, "overloaded")
    assert send(front, "GET", "/health").status == 200


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_unforeseen_failure_has_its_name_and_its_line_in_the_log(front, upstream, caplog, method):
    upstream.error = ZeroDivisionError("secret path")
    upstream.ready = None
    caplog.set_level("INFO")
    path = "/v1/audio/speech" if method == "POST" else "/health/ready"
    body = json.dumps(ASKED).encode() if method == "POST" else b""
    answer = send(front, method, path, body, **{"x-request-id": "named"})
    assert (answer.status, answer.headers["x-request-id"]) == (500, "named")
    front.wait_until(lambda: any(f"{method} {path} 500" in record.getMessage() for record in caplog.records))


def test_failure_after_the_first_audio_is_the_last_event(front, upstream):
    upstream.error, upstream.error_after = UnavailableError(f"{PLACE}: gone"), 1
    answer = ask(front, stream_format="sse")
    assert (answer.status, answer.headers["x-should-retry"]) == (200, "false")
    found = events(answer.body)
    assert found[0]["type"] == "speech.audio.delta"
    assert found[-1]["type"] == "speech.audio.error"
    assert found[-1]["error"]["code"] == "overloaded"
    assert len([event for event in found if event["type"] != "speech.audio.delta"]) == 1


def test_failure_after_the_first_audio_ends_the_body_unfinished(front, upstream):
    upstream.error, upstream.error_after = UnavailableError(f"{PLACE}: gone"), 1
    with pytest.raises(http.client.IncompleteRead):
        ask(front)
    front.wait_until(lambda: front.streams == 0)


def test_unforeseen_failure_after_the_first_audio_tells_no_details(front, upstream):
    upstream.error, upstream.error_after = ZeroDivisionError("secret path"), 1
    [*_, last] = events(ask(front, stream_format="sse").body)
    assert last["error"]["code"] == "internal_error"
    assert "secret" not in last["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "error", "expected"),
    [
        ({"speed": 3.0}, None, openai.BadRequestError),
        ({"model": "gpt-9"}, None, openai.NotFoundError),
        ({"voice": "nobody"}, RefusedError("voice: no", "invalid_argument"), openai.NotFoundError),
        ({}, UnavailableError("full"), openai.InternalServerError),
        ({}, ServerTimeoutError("silent"), openai.InternalServerError),
    ],
)
def test_openai_client_raises_the_right_class(client, upstream, fields, error, expected):
    upstream.error = error
    with pytest.raises(expected) as caught:
        client.audio.speech.create(**{**ASKED, **fields})
    assert caught.value.request_id
    assert caught.value.body["message"]


def test_neighbours_do_not_notice(front, upstream):
    assert ask(front, speed=9).status == 400
    assert ask(front).status == 200
