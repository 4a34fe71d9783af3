"""The ports of a server."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.process.listening import bound, local_url, own_addresses, with_port
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.errors import PreflightError

FREE_PORTS = range(20_000, 30_000)
"""Where a free one is looked for: below those of outgoing connections (Linux: 32768 to 60999), which could
take it before the server does."""


@dataclass(frozen=True)
class ServerPorts:
    """Where a server listens and how it is reached from here.

    Attributes:
        host: as it is set.
        addresses: to which it leads; every port is open at each of them.
    """

    host: str
    http: int
    grpc: int
    metrics: int
    model_metrics: int
    addresses: tuple[str, ...] = ()

    @classmethod
    def choose(cls, settings: ServerSettings) -> ServerPorts:
        """The ports of the settings, with a free one for every 0.

        Raises:
            PreflightError: the host leads to no address of this machine.
            OSError: no port is free.
        """
        wanted = {
            "http": settings.http_port,
            "grpc": settings.grpc_port,
            "metrics": settings.metrics_port,
            "model_metrics": settings.model_metrics_port,
        }
        try:
            addresses = own_addresses(settings.host, "server.host")
        except InvalidInput as error:
            raise PreflightError([str(error)]) from error
        free = (port for port in _free_ports(addresses) if port not in wanted.values())
        chosen = {name: port or next(free) for name, port in wanted.items()}
        return cls(settings.host, **chosen, addresses=addresses)

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

    def listening(self, port: int) -> str:
        """``host:port`` to listen on."""
        return with_port(self.host, port)

    def url(self, port: int) -> str:
        """``host:port`` as clients on this machine write it."""
        return local_url(self.host, port)

    def _problem(self, name: str, port: int) -> str | None:
        try:
            _try(self.addresses, port)
        except OSError as error:
            return (
                f"{name} {port} on {self.host} can't be used ({error.strerror}): stop its user or set {name}"
            )
        return None


def _free_ports(addresses: Sequence[str]) -> Iterator[int]:
    """In an order of its own for every server: several may choose at the same time."""
    for port in random.SystemRandom().sample(FREE_PORTS, len(FREE_PORTS)):
        try:
            _try(addresses, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            yield port
    raise OSError(errno.EADDRINUSE, f"no port from {FREE_PORTS[0]} to {FREE_PORTS[-1]} is free")


def _try(addresses: Sequence[str], port: int) -> None:
    for address in addresses:
        bound(address, port).close()
