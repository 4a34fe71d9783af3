"""The servers behind the HTTP gateway: a tritonserver, or the gateways of several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector, UnixConnector

from cosyvoice_runtime.gateway.options import GatewayOptions


class HttpBehind:
    """Asks tritonserver, or one of several servers after the other.

    Attributes:
        servers: how many there are.
        several: whether there are several, each with a gateway of its own.
    """

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._bases = [f"http://{each}" for each in options.gateways or ("tritonserver",)]
        self.servers = len(self._bases)
        self.several = bool(options.gateways)
        self._turn = 0

    async def open(self) -> None:
        """Make the session, which connects when it is first asked."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0) if self.several else UnixConnector(self._options.server, limit=0),
            timeout=ClientTimeout(),
            # Otherwise the server would compress answers for clients that can't read them.
            skip_auto_headers=["Accept-Encoding"],
        )

    def in_turn(self) -> Iterator[str]:
        """Every server once, for one request: each time the next in all requests' turn that is left."""
        left = set(self._bases)
        while left:
            self._turn = (self._turn + 1) % len(self._bases)
            if (base := self._bases[self._turn]) in left:
                left.remove(base)
                yield base

    async def ask(self, base: str, method: str, path: str, **request: Any) -> ClientResponse:
        """A server's answer, to be closed by who asks; a ClientError if there is none.

        Args:
            base: the server, of :meth:`in_turn`.
        """
        return await self._session.request(method, base + path, **request)

    async def close(self) -> None:
        await self._session.close()
