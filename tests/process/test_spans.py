"""Spans: what turns them on, what is wrong with an address, and receivers that are away."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: requirements/cpu.in")

from cosyvoice_runtime.errors import ClientGoneError, InvalidInput, OverloadedError
from cosyvoice_runtime.process import spans
from cosyvoice_runtime.process.spans import SERVER, TellingExporter, check_spans, open_spans
from otlp_receiver import told_receiver

AT = "http://127.0.0.1:4317"
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def receiver(monkeypatch):
    with told_receiver(monkeypatch) as opened:
        yield opened


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {spans.ENDPOINT: ""},
        {spans.ENDPOINT: AT, spans.DISABLED: "true"},
        {spans.ENDPOINT: AT, spans.DISABLED: " True "},
    ],
)
def test_nothing_is_sent_unasked(environment):
    assert not check_spans(environment)


@pytest.mark.parametrize("address", [AT, "https://collector.example", "collector:4317", "http://[::1]:4317/"])
def test_addresses_of_receivers(address):
    assert check_spans({spans.ENDPOINT: address})


@pytest.mark.parametrize(
    "address", ["http://", "ftp://host:1", "http://host:port", "http://a b", "http://h/v1/traces"]
)
def test_an_address_that_can_not_be_one_is_named(address):
    with pytest.raises(InvalidInput, match=r"OTEL_EXPORTER_OTLP_ENDPOINT: .*http://HOST:PORT is expected"):
        check_spans({spans.ENDPOINT: address})


def test_another_protocol_is_none_of_ours():
    with pytest.raises(
        InvalidInput, match=r"OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf' .* grpc is the only"
    ):
        check_spans({spans.ENDPOINT: AT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(spans, "NEEDS", ("opentelemetry.sdk", "no_such_package.part"))
    with pytest.raises(InvalidInput, match="pip install opentelemetry-sdk=="):
        check_spans({spans.ENDPOINT: AT})


def test_a_number_that_is_none_is_told(monkeypatch):
    monkeypatch.setenv(spans.ENDPOINT, AT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(InvalidInput, match="soon"):
        open_spans(SERVER)


def test_a_process_without_the_variable_imports_nothing_of_it():
    program = (
        "import sys; from cosyvoice_front import audit, spans;"
        "from cosyvoice_runtime.gateway import grpc_gateway;"
        "from cosyvoice_runtime.metrics import trace; trace.send();"
        "print([name for name in sys.modules if name.split('.')[:2] == ['opentelemetry', 'sdk']])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={})
    assert done.stdout.strip() == "[]"


def test_a_span_belongs_to_the_trace_of_its_headers_and_says_how_it_ended(receiver):
    opened = open_spans(SERVER)
    with opened.passed_on("whole", {"traceparent": PARENT, "x-request-id": "one"}) as told:
        assert told["traceparent"].split("-")[1] == "a" * 32
    for error in (OverloadedError("full of secrets", 1.0), ClientGoneError(), ZeroDivisionError("secrets")):
        with pytest.raises(type(error)), opened.during(type(error).__name__, {"traceparent": PARENT}):
            raise error
    opened.close()
    whole, *others = receiver.spans
    assert (whole.trace, whole.parent, whole.service) == ("a" * 32, "b" * 16, SERVER)
    assert told["traceparent"].split("-")[2] == whole.id
    assert whole.said == {"cosyvoice.request_id": "one", "cosyvoice.ending": "ok"}
    endings = [(each.said["cosyvoice.ending"], each.failed) for each in others]
    assert endings == [("refused", False), ("client_left", False), ("error", True)]
    assert not [each for each in receiver.spans if "secrets" in each.whole]


def test_a_span_is_small_whatever_it_is_told(receiver):
    """A batch of more than 4 MiB would be refused, with the spans of others."""
    opened = open_spans(SERVER)
    with opened.during("large", {}, voice="v" * (5 << 20), number=1):
        pass
    opened.close()
    [span] = receiver.spans
    assert (span.said["cosyvoice.voice"], span.said["cosyvoice.number"]) == ("v" * spans.LONGEST, 1)


def test_the_environment_names_the_service(receiver, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "speech")
    opened = open_spans(SERVER)
    with opened.during("span", {}):
        pass
    opened.close()
    assert [each.service for each in receiver.spans] == ["speech"]


def test_a_receiver_that_says_nothing_delays_an_end_by_a_bound(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(spans.ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(spans, "FLUSH_S", 0.2)
        opened = open_spans(SERVER)
        with opened.during("span", {}):
            pass
        begun = time.monotonic()
        opened.close()
        assert 0.1 < time.monotonic() - begun < 8  # the exporter alone would try for ten seconds


class Result:
    def __init__(self, name: str) -> None:
        self.name = name


class Exporter:
    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def export(self, _spans):
        return Result(self._names.pop(0))


def test_losses_are_told_once_until_spans_are_taken_again(caplog):
    caplog.set_level(logging.INFO, spans.__name__)
    exporter = TellingExporter(Exporter("SUCCESS", "FAILURE", "FAILURE", "SUCCESS", "SUCCESS", "FAILURE"))
    for _ in range(6):
        exporter.export([])
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
