"""Addresses of the gRPC ports of servers, as people write them."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

from cosyvoice_client.errors import InvalidArgumentError

EXPECTED = "host:port, dns:///host:port, several host:port with commas between them, or unix:/path"
NETWORK = re.compile(
    r"(?:(?:http|grpc)://|(?P<dns>dns:///))?((?:\[[0-9a-f:.]+(?:%\w+)?\]|[^\s/:@?#,\[\]]+):\d{1,5})/?",
    re.IGNORECASE,
)
DNS = "dns:///"
"""Stands before a name that leads to many servers."""
UNIX = re.compile(r"unix:(?://)?/[^\s,]+")
DIRECT = ("grpc.enable_http_proxy", 0)
"""Option of a channel: no proxy that the environment names is asked."""


def grpc_address(url: str) -> str:
    """``host:port`` as gRPC takes it; a scheme that means nothing else, and a slash at the end, are left out.

    ``dns:///`` stays: the name behind it leads to many servers. So do commas between several addresses.

    Raises:
        InvalidArgumentError: it is no such address. The server has no TLS, so ``https://`` is none.
    """
    if UNIX.fullmatch(url):
        return url
    found = [NETWORK.fullmatch(each.strip()) for each in url.split(",")]
    known = [each for each in found if each and _has_port(each[2]) and not (each["dns"] and len(found) > 1)]
    if len(known) != len(found):
        raise InvalidArgumentError(f"{url}: {EXPECTED} is expected")
    return ",".join((DNS if each["dns"] else "") + each[2] for each in known)


def names_several(address: str) -> bool:
    """Whether an address leads to several servers."""
    return address.startswith(DNS) or "," in address


def grpc_target(address: str) -> str:
    """An address in the form that gRPC resolves; of several, names are looked up here and now.

    Raises:
        InvalidArgumentError: a name is unknown, or the addresses are of both IPv4 and IPv6.
    """
    if "," not in address:
        return address
    found = [_looked_up(each) for each in address.split(",")]
    families = {family for family, _ in found}
    if len(families) > 1:
        raise InvalidArgumentError(f"{address}: addresses of either IPv4 or IPv6 are expected")
    return f"{families.pop()}:{','.join(each for _, each in found)}"


def require_known(address: str) -> None:
    """Raise an InvalidArgumentError where a name leads nowhere at this moment."""
    if not UNIX.fullmatch(address):
        for each in address.removeprefix(DNS).split(","):
            _looked_up(each)


def _looked_up(address: str) -> tuple[str, str]:
    parts = urlsplit(f"//{address}")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"{address}: a name that is known here is expected ({reason})") from error
    four = [place for family, *_, place in found if family == socket.AF_INET]
    if four:
        return "ipv4", f"{four[0][0]}:{parts.port}"
    return "ipv6", f"[{found[0][4][0]}]:{parts.port}"


def _has_port(address: str) -> bool:
    """Whether its port is one, and what stands in brackets an address of IPv6."""
    try:
        return bool(urlsplit(f"//{address}").port)
    except ValueError:
        return False


def is_here(address: str) -> bool:
    """Whether an address is one of this machine. No name is looked up: another machine's may take long."""
    address = address.removeprefix(DNS)
    if "," in address:
        return all(map(is_here, address.split(",")))
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
