"""The choice of a server's ports."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.process.listening import bound, local_url, own_addresses, with_port
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.errors import PreflightError

FREE_PORTS = range(20_000, 30_000)
"""The range of free ports: below the ports of outgoing connections (Linux: 32768 to 60999), which could take
one before the server does."""


@dataclass(frozen=True)
class ServerPorts:
    """The addresses on which a server listens and by which it is reached locally.

    Attributes:
        host: the host of the settings.
        addresses: addresses of the host; every port is open at each of them.
    """

    host: str
    http: int
    grpc: int
    metrics: int
    model_metrics: int
    addresses: tuple[str, ...] = ()

    @classmethod
    def choose(cls, settings: ServerSettings) -> ServerPorts:
        """Choose the ports of the settings, with a free one for every 0.

        Raises:
            PreflightError: the host leads to no address of this machine.
            OSError: no port is free.
        """
        try:
            addresses = own_addresses(settings.host, "server.host")
        except InvalidInput as error:
            raise PreflightError([str(error)]) from error
        ports = [settings.http_port, settings.grpc_port, settings.metrics_port, settings.model_metrics_port]
        # Each server tries the ports in a random order, because several may choose at the same time.
        candidates = random.SystemRandom().sample(FREE_PORTS, len(FREE_PORTS))
        free = (port for port in candidates if port not in ports and _obstacle(addresses, port) is None)
        try:
            http, grpc, metrics, model_metrics = [port or next(free) for port in ports]
        except StopIteration:
            text = f"no port from {FREE_PORTS[0]} to {FREE_PORTS[-1]} is free"
            raise OSError(errno.EADDRINUSE, text) from None
        return cls(settings.host, http, grpc, metrics, model_metrics, addresses)

    @property
    def problems(self) -> list[str]:
        """The reasons why the server can't listen, one sentence each."""
        named = {
            "http_port": self.http,
            "grpc_port": self.grpc,
            "metrics_port": self.metrics,
            "model_metrics_port": self.model_metrics,
        }
        if len(set(named.values())) < len(named):
            return [f"{', '.join(named)} must differ, they are {list(named.values())}"]
        return [
            f"{name} {port} on {self.host} can't be used ({reason}): stop its user or set {name}"
            for name, port in named.items()
            if (reason := _obstacle(self.addresses, port))
        ]

    def listening(self, port: int) -> str:
        """The ``host:port`` to listen on."""
        return with_port(self.host, port)

    def url(self, port: int) -> str:
        """The ``host:port`` for clients on this machine."""
        return local_url(self.host, port)


def _obstacle(addresses: tuple[str, ...], port: int) -> str | None:
    """The reason why a port can't be used at all of these addresses."""
    try:
        for address in addresses:
            bound(address, port).close()
    except OSError as error:
        return error.strerror
    return None
