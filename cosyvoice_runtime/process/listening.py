"""The addresses of a host on this machine, sockets that listen on them, and direct channels to them."""

from __future__ import annotations

import errno
import ipaddress
import socket

from cosyvoice_runtime.errors import InvalidInput

DIRECT = ("grpc.enable_http_proxy", 0)
"""Channel options that bypass the proxy of the environment."""


LOCALHOST = ("127.0.0.1", "::1")
"""The addresses of localhost, whatever the hosts file says."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean all interfaces, and the address to reach each of them locally."""
NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def own_addresses(host: str, field: str) -> tuple[str, ...]:
    """The local addresses of a host, which is an address or a name.

    Args:
        field: name of the setting.

    Raises:
        InvalidInput: the host has no address of this machine.
    """
    own = tuple(address for address in _addresses(host, field) if _is_own(address))
    if not own:
        limit = "an address of this machine is expected, as 127.0.0.1, ::1, 0.0.0.0 or ::, or a name of it"
        raise InvalidInput(field, host, limit)
    return own


def bound(address: str, port: int) -> socket.socket:
    """A TCP socket bound to an address, ``::`` for IPv4 as well; an OSError if that can't be had."""
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        listening.bind((address, port))
    except OSError:
        listening.close()
        raise
    return listening


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def with_port(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_port(address: str) -> tuple[str, int]:
    """The host and port of :func:`with_port`'s result."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def local_url(host: str, port: int) -> str:
    """``host:port`` as clients on this machine write it."""
    return with_port(EVERYWHERE.get(host, host), port)


def _addresses(host: str, field: str) -> tuple[str, ...]:
    if host == "localhost":
        return LOCALHOST
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(field, host, f"an address, or a name that is known here ({reason})") from None
    return tuple(dict.fromkeys(str(place[0]) for *_, place in found))


def _is_own(address: str) -> bool:
    try:
        bound(address, 0).close()
    except OSError as error:
        if error.errno in NOT_OURS:
            return False
        raise
    return True
