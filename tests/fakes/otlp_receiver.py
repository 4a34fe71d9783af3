"""A receiver of spans by OTLP's gRPC service, which keeps them for a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from eventually import eventually


class ReceivedSpan:
    """
    Attributes:
        name: of the span; ``service`` is that of its process.
        trace, id, parent: in hexadecimal; the parent is empty for the first span of a trace.
        said: attributes.
        events: names, and the attributes of each.
        links: ids of earlier spans, and the attributes of each link.
    """

    def __init__(self, resource: Any, span: Any) -> None:
        self.name = span.name
        self.service = values(resource.attributes)["service.name"]
        self.process = values(resource.attributes).get("process.pid")
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.said = values(span.attributes)
        self.events = [(event.name, values(event.attributes)) for event in span.events]
        self.links = [(link.span_id.hex(), values(link.attributes)) for link in span.links]
        self.failed = span.status.code == span.status.STATUS_CODE_ERROR
        self.whole = str(MessageToDict(span))


def values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


class OtlpReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """
    Attributes:
        spans: all that have come, those that ended first before others of their process.
        address: where it listens.
    """

    def __init__(self, port: int = 0) -> None:
        self.spans: list[ReceivedSpan] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        self._server.start()

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802
        for each in request.resource_spans:
            self.spans += [
                ReceivedSpan(each.resource, span) for part in each.scope_spans for span in part.spans
            ]
        return trace_service_pb2.ExportTraceServiceResponse()

    def of_trace(self, trace: str, complete: Callable[[list[ReceivedSpan]], bool]) -> list[ReceivedSpan]:
        """The spans of a trace, as soon as they are complete."""
        eventually(lambda: complete(self._of(trace)))
        return self._of(trace)

    def _of(self, trace: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace == trace]

    def close(self) -> None:
        self._server.stop(None).wait()


@contextmanager
def receiving(port: int = 0) -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver(port)
    try:
        yield receiver
    finally:
        receiver.close()


@contextmanager
def told_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """A receiver to which this process sends all its spans."""
    with receiving() as receiver:
        for name, value in variables(receiver.address).items():
            monkeypatch.setenv(name, value)
        yield receiver


def variables(address: str) -> dict[str, str]:
    """Variables of a process that sends all its spans there, soon."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}", "OTEL_BSP_SCHEDULE_DELAY": "50"}
