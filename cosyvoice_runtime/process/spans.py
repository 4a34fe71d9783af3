"""Spans of OpenTelemetry, sent to the receiver that ``OTEL_EXPORTER_OTLP_ENDPOINT`` names.

Without the variable nothing is imported and nothing is recorded. How spans are sampled and sent, and what
they say of the process, is set by OpenTelemetry's own variables. No span holds a text, a key or a recording,
and none holds the message of an error, which may quote one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from cosyvoice_runtime.errors import ClientGoneError, InvalidInput, status_of
from cosyvoice_runtime.process.audit_log import ERROR, LEFT, OK, REFUSED
from cosyvoice_runtime.process.headers import REQUEST_HEADER

logger = logging.getLogger(__name__)

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENDPOINTS = (ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
DISABLED = "OTEL_SDK_DISABLED"
ADDRESS = re.compile(r"(?:https?://)?(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?/?", re.ASCII)
"""An address of a receiver: a host, with the scheme and the port that are left to defaults without."""
NEEDS = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc")
INSTALL = "pip install opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-grpc==1.45.2"
FRONT, SERVER = "cosyvoice-front", "cosyvoice-server"
"""Names of services, where ``OTEL_SERVICE_NAME`` gives none."""
FLUSH_S = 2.0
"""The longest time for which the end of a process waits for the receiver."""
FAULTS = ("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "DATA_LOSS")
"""These statuses are errors of the server; all others are refusals."""
LEAVING = (ClientGoneError, asyncio.CancelledError, GeneratorExit, ConnectionError)
"""How a client that has left ends the work for it."""
PREFIX = "cosyvoice."
"""The beginning of the names of all attributes."""
LONGEST = 256
"""Most characters of an attribute: a receiver refuses the whole batch of a span that is too large."""


def check_spans(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether spans are asked for.

    Raises:
        InvalidInput: they can't be sent, and why.
    """
    if not environment.get(ENDPOINT) or environment.get(DISABLED, "").lower().strip() == "true":
        return False
    for name in ENDPOINTS:
        address = environment.get(name)
        if address and not ADDRESS.fullmatch(address):
            raise InvalidInput(name, address, "http://HOST:PORT is expected, or https://HOST:PORT")
    for name in PROTOCOLS:
        if environment.get(name, "grpc") not in ("", "grpc"):
            raise InvalidInput(name, environment[name], "grpc is the only one here")
    if not all(map(_is_installed, NEEDS)):
        raise InvalidInput(ENDPOINT, environment[ENDPOINT], f"it needs packages: {INSTALL}")
    return True


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def open_spans(service: str) -> Spans | None:
    """Open the maker of this process's spans; None where none are asked for.

    Args:
        service: name of the service, if the environment gives none.

    Raises:
        InvalidInput: they can't be sent, and why.
    """
    try:
        return Spans(service) if check_spans() else None
    except ValueError as error:  # of a number in one of OpenTelemetry's variables
        raise InvalidInput("OTEL_*", str(error), "what OpenTelemetry's specification allows") from None


class Spans:
    """Makes spans, which a thread sends in batches. Those that the receiver doesn't take in time are lost."""

    def __init__(self, service: str) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        said: dict[str, Any] = {"process.pid": os.getpid()}
        if SERVICE_NAME not in OTELResourceDetector().detect().attributes:
            said[SERVICE_NAME] = service
        for name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # They would tell each loss of a batch.
        self._provider = TracerProvider(resource=Resource.create(said), shutdown_on_exit=False)
        exporter: Any = TellingExporter(OTLPSpanExporter())
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("cosyvoice")
        self._propagator = TraceContextTextMapPropagator()

    def begin(
        self,
        name: str,
        headers: Mapping[str, str],
        *,
        calls: bool = False,
        after: Sequence[Any] = (),
        **said: Any,
    ) -> Any:
        """Begin a span, which belongs to the trace of the headers if they name one.

        Args:
            calls: whether another process does the work.
            after: links to earlier spans.
            said: attributes.
        """
        from opentelemetry.trace import SpanKind

        return self._tracer.start_span(
            name,
            self._propagator.extract(headers),
            SpanKind.CLIENT if calls else SpanKind.SERVER,
            attributes(**said),
            after,
        )

    def headers(self, span: Any) -> dict[str, str]:
        """The headers by which another process goes on with the trace."""
        from opentelemetry.trace import set_span_in_context

        said: dict[str, str] = {}
        self._propagator.inject(said, set_span_in_context(span))
        return said

    @staticmethod
    def link(span: Any, **said: Any) -> Any:
        """A link to an earlier span."""
        from opentelemetry.trace import Link

        return Link(span.get_span_context(), attributes(**said))

    @contextmanager
    def during(self, name: str, headers: Mapping[str, str], **said: Any) -> Iterator[Any]:
        """A span as of :meth:`begin`, which ends as the block does."""
        span = self.begin(name, headers, **said)
        try:
            yield span
        except BaseException as error:
            status = str(getattr(error, "status", "")) or status_of(error)
            self.end(span, _ending(error, status), status=status)
            raise
        self.end(span, OK)

    @contextmanager
    def passed_on(self, name: str, headers: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """A span as of :meth:`during`, and the headers by which a server goes on with it."""
        with self.during(name, headers, request_id=headers.get(REQUEST_HEADER)) as span:
            yield {**headers, **self.headers(span)}

    @staticmethod
    def end(span: Any, ending: str, **said: Any) -> None:
        """End a span.

        Args:
            ending: one of those of the audit log.
            said: further attributes; those that are None are left out.
        """
        from opentelemetry.trace import StatusCode

        span.set_attributes(attributes(ending=ending, **said))
        if ending == ERROR:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Send what is left, as far as the receiver takes it in time."""
        # It may wait for the receiver for longer.
        ending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        ending.start()
        ending.join(FLUSH_S)


def attributes(**said: Any) -> dict[str, Any]:
    """Attributes of a span by their full names, without those that are None; long strings are cut."""
    return {PREFIX + name: _cut(value) for name, value in said.items() if value is not None}


def _cut(value: Any) -> Any:
    return value[:LONGEST] if isinstance(value, str) else value


def _ending(error: BaseException, status: str) -> str:
    if isinstance(error, LEAVING):
        return LEFT
    return ERROR if status in FAULTS else REFUSED


class TellingExporter:
    """Sends spans by an exporter of OpenTelemetry, and tells once that they are lost, and when no longer."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._loses = False

    def export(self, spans: Sequence[Any]) -> Any:
        """Send spans."""
        result = self._exporter.export(spans)
        loses = result.name != "SUCCESS"
        if loses and not self._loses:
            logger.warning("the receiver of %s takes no spans: they are lost until it does", ENDPOINT)
        elif self._loses and not loses:
            logger.info("the receiver of %s takes spans again", ENDPOINT)
        self._loses = loses
        return result

    def shutdown(self) -> None:
        """End the connection."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return bool(self._exporter.force_flush(timeout_millis))
