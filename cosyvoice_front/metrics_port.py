"""A port for Prometheus alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cosyvoice_front.metrics import Metrics
from cosyvoice_runtime.process.listening import is_loopback, own_addresses
from cosyvoice_runtime.settings import FrontSettings


@contextmanager
def metrics_port(settings: FrontSettings, metrics: Metrics) -> Iterator[None]:
    """Serve all numbers at ``front.metrics_port``, from threads of their own; 0 is no port.

    Pages of browsers read none of them. Raises an OSError where the port is taken.
    """
    if not settings.metrics_port:
        yield
        return
    # Imported here because it brings most of the server's supervisor.
    from cosyvoice_runtime.supervisor.metrics import MetricsEndpoint

    addresses = own_addresses(settings.host, "front.host")
    names = settings.allowed_hosts if all(map(is_loopback, addresses)) else None
    endpoint = MetricsEndpoint(addresses, {settings.metrics_port: metrics.whole_page}, names)
    try:
        yield
    finally:
        endpoint.close()
