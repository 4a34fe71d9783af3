"""Pages of a server that is measured."""

from __future__ import annotations

import urllib.request

TIMEOUT_S = 10.0


def read_page(url: str) -> str:
    """Text of a page, which no proxy of the environment is asked for.

    Raises:
        OSError: there is no answer.
    """
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=TIMEOUT_S) as page:
        return str(page.read().decode())
