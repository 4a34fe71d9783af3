"""The ports of a server."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from cosyvoice_runtime.settings import ServerSettings

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean every interface, and how to reach such a server from its own machine."""


@dataclass(frozen=True)
class Ports:
    """Where a server listens and how it is reached from here."""

    host: str
    http: int
    grpc: int
    metrics: int
    model_metrics: int

    @classmethod
    def choose(cls, settings: ServerSettings) -> Ports:
        """The ports of the settings, with a free one for every 0."""
        wanted = {
            "http": settings.http_port,
            "grpc": settings.grpc_port,
            "metrics": settings.metrics_port,
            "model_metrics": settings.model_metrics_port,
        }
        with contextlib.ExitStack() as held:  # all held until all are chosen, so that they differ
            chosen = {
                name: port or held.enter_context(_bound(settings.host, 0)).getsockname()[1]
                for name, port in wanted.items()
            }
        return cls(settings.host, **chosen)

    @property
    def problems(self) -> list[str]:
        named = {
            "http_port": self.http,
            "grpc_port": self.grpc,
            "metrics_port": self.metrics,
            "model_metrics_port": self.model_metrics,
        }
        if len(set(named.values())) < len(named):
            return [f"{', '.join(named)} must differ, they are {list(named.values())}"]
        return [problem for name, port in named.items() if (problem := self._problem(name, port))]

    @property
    def arguments(self) -> list[str]:
        """Those of tritonserver."""
        return [
            *(f"--{name}-address={self.host}" for name in ("http", "grpc", "metrics")),
            f"--http-port={self.http}",
            f"--grpc-port={self.grpc}",
            f"--metrics-port={self.metrics}",
        ]

    def url(self, port: int) -> str:
        """``host:port`` as clients on this machine write it."""
        host = EVERYWHERE.get(self.host, self.host)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _problem(self, name: str, port: int) -> str | None:
        try:
            _bound(self.host, port).close()
        except OSError as error:
            return (
                f"{name} {port} on {self.host} can't be used ({error.strerror}): stop its user or set {name}"
            )
        return None


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
