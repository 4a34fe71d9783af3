"""The check that keeps web pages in browsers from calling a local server.

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
    """The call may come from a web page."""


def refuse_pages(host: str | None, origin: str | None, names: Collection[str] | None) -> None:
    """Refuse a call that a web page may have made.

    Args:
        host, origin: headers of the call; None if absent.
        names: host names, besides localhost and addresses, that programs may use; None for any.

    Raises:
        PageError: a web page may have made the call.
    """
    if origin is not None:
        raise PageError("Origin: pages of browsers are not served here")
    if names is None or host is None:
        return
    name = host_of(host, "//")[1]
    if not (is_fixed(name) or name in map(str.lower, names)):
        allowed = "by localhost, by an address, or by a name in server.allowed_hosts"
        raise PageError(
            f"Host: {shorten(host)} is not accepted; a server of this machine is called {allowed}"
        )


def is_fixed(name: str) -> bool:
    """Whether others can't change where a name leads: addresses, and this machine's own name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


def host_of(address: str, prefix: str = "") -> tuple[str, str]:
    """The name with its port, and the name alone, of an address; empty if it is not valid."""
    try:
        split = urlsplit(prefix + address)
        return split.netloc, split.hostname or ""
    except ValueError:
        return "", ""
