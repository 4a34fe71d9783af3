"""The audit log: a line for each request that asks for a key, which says all but the text and the key."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from test_front_keys import write_keys

from cosyvoice_client import UnavailableError
from cosyvoice_front.command import main
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.process.audit_log import AuditLog
from raw_http import ask, begin, send
from wire_client import asked, open_cartesia, open_omni

FIELDS = [
    "time", "request_id", "key", "peer", "route", "voice", "characters", "seconds", "ending", "status",
    "duration_ms",
]  # fmt: skip
SECRETS = ("sk-anna", "sk-carl", "spoken secretly")


@pytest.fixture
def log(tmp_path):
    return tmp_path / "audit.log"


@pytest.fixture
def audited(start_front, tmp_path, log):
    return start_front(api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna"), audit_file=log)


def lines(log, count):
    """The entries of a log; a line is written when its request has ended, which clients see a bit earlier."""
    written = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert len(written) == count
    assert all(list(line) == FIELDS for line in written)
    assert not any(secret in log.read_text("utf-8") for secret in SECRETS)
    return written


def wait_for(front, log, count):
    front.wait_until(lambda: log.read_text("utf-8").count("\n") >= count)
    return lines(log, count)


def facts(line, *names):
    return tuple(
        line[name] for name in names or ("key", "voice", "characters", "seconds", "ending", "status")
    )


def test_speech_is_a_line_with_all_but_its_text(audited, log):
    assert ask(audited, "sk-anna", input="spoken secretly", voice="alloy").status == 200
    [line] = wait_for(audited, log, 1)
    assert facts(line) == ("anna", "default", 15, 0.8, "ok", 200)
    assert facts(line, "peer", "route") == ("127.0.0.1", "POST /v1/audio/speech")
    assert line["duration_ms"] >= 0
    assert line["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("key", "fields", "said"),
    [
        ("sk-carl", {}, (None, None, None, None, "refused", 401)),
        ("sk-anna", {"speed": "broken"}, ("anna", None, None, None, "refused", 400)),
        ("sk-anna", {"model": "none"}, ("anna", None, None, None, "refused", 404)),
    ],
)
def test_refused_request_is_a_line(audited, log, key, fields, said):
    ask(audited, key, **fields)
    [line] = wait_for(audited, log, 1)
    assert facts(line) == said


@pytest.mark.parametrize(
    ("error", "after", "ending", "status"),
    [
        (UnavailableError("full; try again in 1 s"), 0, "refused", 503),
        (RuntimeError("broken"), 0, "error", 500),
        (RuntimeError("broken"), 1, "error", 200),
        (UnavailableError("gone"), 1, "error", 200),
    ],
)
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_failure_is_told_apart_from_a_refusal(
    audited, upstream, log, error, after, ending, status, stream_format
):
    upstream.error, upstream.error_after = error, after
    with begin(audited, key="sk-anna", stream_format=stream_format):
        [line] = wait_for(audited, log, 1)
    assert facts(line, "key", "ending", "status") == ("anna", ending, status)


@pytest.mark.parametrize("heard", [True, False])
def test_client_that_leaves_is_a_line(audited, upstream, log, heard):
    upstream.gates = asyncio.Semaphore(0)
    with begin(audited, key="sk-anna") as connection:
        audited.wait_until(lambda: upstream.active == 1)
        if heard:
            connection.recv(4096)
    [line] = wait_for(audited, log, 1)
    assert facts(line, "key", "ending") == ("anna", "client_left")


def test_lists_are_lines_and_probes_metrics_and_pages_are_none(audited, log):
    for path in ("/health", "/health/ready", "/", "/nowhere"):
        send(audited, "GET", path)
    send(audited, "GET", "/metrics", Authorization="Bearer sk-anna")
    send(audited, "GET", "/metrics")
    send(audited, "GET", "/v1/models", Authorization="Bearer sk-anna")
    refused, listed = wait_for(audited, log, 2)
    assert facts(refused, "key", "route", "ending") == (None, "GET /metrics", "refused")
    assert facts(listed, "key", "route", "ending") == ("anna", "GET /v1/models", "ok")


def test_each_context_of_a_socket_is_a_line_under_the_socket_s_name(audited, log):
    with open_cartesia(audited, x_api_key="sk-anna", x_request_id="call-7") as wire:
        wire.send(asked("spoken secretly. ", **{"continue": False}))
        wire.until("done")
        wire.send(asked("One. ", context_id="two", **{"continue": True}))
        wire.until("chunk")
        wire.send({"context_id": "two", "cancel": True})
        wire.until("done")
        wire.send(asked("One. ", context_id="three", **{"continue": True}))
        wire.until("chunk")
        wire.send(asked("Two. ", context_id="three", language="de", **{"continue": True}))
        wire.error()
    said = [facts(each, "request_id", "key", "ending", "status") for each in wait_for(audited, log, 4)]
    assert said == [
        ("call-7-1", "anna", "ok", None),
        ("call-7-2", "anna", "client_left", None),
        ("call-7-3", "anna", "refused", 400),
        ("call-7", "anna", "ok", 101),
    ]
    first = lines(log, 4)[0]
    assert facts(first, "route", "voice", "characters") == ("WS /tts/websocket", "default", 17)
    assert first["seconds"] > 0


def test_utterances_of_a_socket_that_is_dropped_have_been_left(audited, upstream, log):
    upstream.gates = asyncio.Semaphore(0)
    with open_omni(audited, **{"x-api-key": "sk-anna"}) as wire:
        wire.send({"type": "session.config", "voice": "mine"}, {"type": "input.text", "text": "One. Two."})
        wire.until("audio.start")
        wire.drop()
    utterance, socket = wait_for(audited, log, 2)
    assert facts(utterance, "key", "voice", "ending") == ("anna", "mine", "client_left")
    assert facts(socket, "key", "voice", "status") == ("anna", None, 101)


def test_socket_without_a_key_is_a_refused_line(audited, log):
    with pytest.raises(Exception, match="401"), open_omni(audited):
        pass
    [line] = wait_for(audited, log, 1)
    assert facts(line, "key", "route", "ending", "status") == (
        None, "WS /v1/audio/speech/stream", "refused", 401,
    )  # fmt: skip


def test_nothing_that_a_client_says_makes_a_line_of_its_own(audited, log):
    forged = 'x"}\n{"key": "root"}\r\u2028'
    ask(audited, "sk-anna", voice=forged)
    [line] = wait_for(audited, log, 1)
    assert line["voice"] == forged
    assert log.read_bytes().isascii()


def test_renamed_file_is_made_anew_and_a_lost_line_ends_nothing(audited, log, tmp_path, caplog):
    assert ask(audited, "sk-anna").status == 200
    wait_for(audited, log, 1)
    log.rename(tmp_path / "audit.log.1")
    assert ask(audited, "sk-anna").status == 200
    audited.wait_until(log.exists)
    wait_for(audited, log, 1)
    log.unlink()
    os.symlink("/dev/full", log)
    assert ask(audited, "sk-anna").status == 200
    audited.wait_until(lambda: "a line of the audit log is lost: [Errno 28]" in caplog.text)


def test_lines_go_to_standard_output_when_asked(capsys):
    AuditLog("-", "front.audit_file").write(key="anna")
    assert json.loads(capsys.readouterr().out)["key"] == "anna"


def test_file_that_cannot_be_written_is_told_at_the_start(tmp_path, caplog):
    with pytest.raises(InvalidInput, match=r"front\.audit_file: '.*' is not accepted; a file that can be"):
        AuditLog(str(tmp_path / "none" / "audit.log"), "front.audit_file")
    assert main([f"front.audit_file={tmp_path}/none/audit.log", "front.port=0"]) == 2
    assert "front.audit_file" in caplog.text


@pytest.mark.parametrize("path", ["/v1/models", "/nowhere", "/v1/audio/speech/"])
def test_every_error_says_the_id_by_which_the_logs_name_its_request(audited, path):
    assert send(audited, "GET", path, **{"X-Request-Id": "call-8"}).headers["x-request-id"] == "call-8"
