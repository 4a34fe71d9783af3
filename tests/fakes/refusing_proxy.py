"""A proxy that answers everything with 503, and counts what it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from threading import Thread

NAMES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
EXCEPTIONS = ("no_proxy", "no_grpc_proxy")


class RefusingProxy(ThreadingHTTPServer):
    """
    Attributes:
        asked: first line of each request.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Refusal)

    @property
    def variables(self) -> dict[str, str]:
        """Every variable that may name a proxy, in both cases; those for exceptions are empty."""
        url = f"http://127.0.0.1:{self.server_port}"
        named = {**dict.fromkeys(NAMES, url), **dict.fromkeys(EXCEPTIONS, "")}
        return {case(name): value for (name, value), case in product(named.items(), (str.lower, str.upper))}


class _Refusal(BaseHTTPRequestHandler):
    server: RefusingProxy

    def handle_one_request(self) -> None:
        self.server.asked.append(self.rfile.readline().decode())
        self.wfile.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def refusing_proxy() -> Iterator[RefusingProxy]:
    with RefusingProxy() as proxy:
        thread = Thread(target=proxy.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
