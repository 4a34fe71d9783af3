"""A gRPC server with Triton's interface whose models answer, fail or hang as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

Answer = Callable[[Any, Any], Any]


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """
    Attributes:
        infer: answers unary requests; called with request and context.
        ready: whether its models are loaded.
        stream: yields responses to one streamed request.
        cancelled: set when a caller has cancelled a stream.
        requests: the streamed requests so far.
    """

    def __init__(self) -> None:
        self.infer: Answer = lambda request, context: service_pb2.ModelInferResponse()
        self.stream: Answer = lambda request, context: iter(())
        self.ready = True
        self.cancelled = threading.Event()
        self.requests: list[Any] = []
        self.released = threading.Event()

    def ModelReady(self, request, context):  # noqa: N802
        return service_pb2.ModelReadyResponse(ready=self.ready)

    def ModelInfer(self, request, context):  # noqa: N802
        return self.infer(request, context)

    def ModelStreamInfer(self, requests, context):  # noqa: N802
        ended: list[bool] = []
        context.add_callback(lambda: None if ended else self.cancelled.set())
        for request in requests:
            self.requests.append(request)
            yield from self.stream(request, context)
        if not self.released.is_set():  # else it is the test that has ended
            ended.append(True)

    def hang(self, request, context) -> Iterator[Any]:
        """Answer nothing for as long as the test lasts."""
        self.released.wait()
        return iter(())


@contextmanager
def serving(fake: FakeTriton) -> Iterator[str]:
    """The address of a server with this servicer."""
    server = grpc.server(ThreadPoolExecutor(80))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        fake.released.set()
        server.stop(None).wait()
