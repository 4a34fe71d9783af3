"""Calls that a page makes through a browser on this machine or near it.

A browser says which site a page is of, in ``Origin``, whenever the page may change something by its call or
read the answer of another site. It does not where the page's own name has come to lead here; then ``Host``
holds that name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from cosyvoice_runtime.errors import CosyVoiceError, shorten


class PageError(CosyVoiceError):
    """A page of a browser may have called."""


def refuse_pages(host: str | None, origin: str | None, names: Collection[str] | None) -> None:
    """
    Args:
        host, origin: headers of a call; None for those that it doesn't have.
        names: by which programs may call, beside localhost and addresses; None for any.

    Raises:
        PageError: a page may have called.
    """
    if origin is not None:
        raise PageError("Origin: pages of browsers are not served here")
    if names is None or host is None:
        return
    name = parts(host, "//")[1]
    if not (is_fixed(name) or name in map(str.lower, names)):
        allowed = "by localhost, by an address, or by a name in server.allowed_hosts"
        raise PageError(
            f"Host: {shorten(host)} is not accepted; a server of this machine is called {allowed}"
        )


def is_fixed(name: str) -> bool:
    """Whether nobody else can say where a name leads: addresses, and this machine's own."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


def parts(address: str, prefix: str = "") -> tuple[str, str]:
    """Name and port as they stand in an address, and the name alone; empty where it is none."""
    try:
        split = urlsplit(prefix + address)
        return split.netloc, split.hostname or ""
    except ValueError:
        return "", ""
