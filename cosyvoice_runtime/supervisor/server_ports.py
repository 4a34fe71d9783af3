"""The ports of a server."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from cosyvoice_runtime.settings import ServerSettings

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean every interface, and how to reach such a server from its own machine."""
FREE_PORTS = range(20_000, 30_000)
"""Where a free one is looked for: below those of outgoing connections (Linux: 32768 to 60999), which could
take it before the server does."""


@dataclass(frozen=True)
class ServerPorts:
    """Where a server listens and how it is reached from here."""

    host: str
    http: int
    grpc: int
    metrics: int
    model_metrics: int

    @classmethod
    def choose(cls, settings: ServerSettings) -> ServerPorts:
        """The ports of the settings, with a free one for every 0.

        Raises:
            OSError: the host is no address of this machine, or no port is free.
        """
        wanted = {
            "http": settings.http_port,
            "grpc": settings.grpc_port,
            "metrics": settings.metrics_port,
            "model_metrics": settings.model_metrics_port,
        }
        free = (port for port in _free_ports(settings.host) if port not in wanted.values())
        return cls(settings.host, **{name: port or next(free) for name, port in wanted.items()})

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
        """Those of tritonserver, which serves nothing but its metrics to other machines by itself."""
        return [f"--metrics-address={self.host}", f"--metrics-port={self.metrics}"]

    def listening(self, port: int) -> str:
        """``host:port`` to listen on."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def url(self, port: int) -> str:
        """``host:port`` as clients on this machine write it."""
        return local_url(self.host, port)

    def _problem(self, name: str, port: int) -> str | None:
        try:
            _bound(self.host, port).close()
        except OSError as error:
            return (
                f"{name} {port} on {self.host} can't be used ({error.strerror}): stop its user or set {name}"
            )
        return None


def local_url(host: str, port: int) -> str:
    """``host:port`` as clients on this machine write it."""
    host = EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _free_ports(host: str) -> Iterator[int]:
    """In an order of its own for every server: several may choose at the same time."""
    for port in random.SystemRandom().sample(FREE_PORTS, len(FREE_PORTS)):
        try:
            _bound(host, port).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            yield port
    raise OSError(errno.EADDRINUSE, f"no port from {FREE_PORTS[0]} to {FREE_PORTS[-1]} is free")


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
