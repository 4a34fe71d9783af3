"""Addresses of a server's gRPC port, as people write them."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

from cosyvoice_client.errors import InvalidArgumentError

EXPECTED = "host:port or unix:/path"
NETWORK = re.compile(
    r"(?:(?:http|grpc)://|dns:///)?((?:\[[0-9a-f:.]+(?:%\w+)?\]|[^\s/:@?#\[\]]+):\d{1,5})/?", re.IGNORECASE
)
UNIX = re.compile(r"unix:(?://)?/\S+")
DIRECT = ("grpc.enable_http_proxy", 0)
"""Option of a channel: no proxy that the environment names is asked."""


def grpc_address(url: str) -> str:
    """``host:port`` as gRPC takes it; a scheme that means nothing else, and a slash at the end, are left out.

    Raises:
        InvalidArgumentError: it is no such address. The server has no TLS, so ``https://`` is none.
    """
    if UNIX.fullmatch(url):
        return url
    found = NETWORK.fullmatch(url)
    if not found or not _has_port(found[1]):
        raise InvalidArgumentError(f"{url}: {EXPECTED} is expected")
    return found[1]


def _has_port(address: str) -> bool:
    """Whether its port is one, and what stands in brackets an address of IPv6."""
    try:
        return bool(urlsplit(f"//{address}").port)
    except ValueError:
        return False


def is_here(address: str) -> bool:
    """Whether an address is one of this machine. No name is looked up: another machine's may take long."""
    host = urlsplit(f"//{address}").hostname or ""
    if UNIX.fullmatch(address) or host in ("localhost", socket.gethostname().lower()):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
