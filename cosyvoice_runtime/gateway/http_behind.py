"""The servers behind the HTTP gateway: a tritonserver, or the gateways of several."""

from __future__ import annotations

from typing import Any

from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector, UnixConnector

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.tries import tries_of


class HttpBehind:
    """Asks tritonserver, or one of several servers after the other.

    Attributes:
        servers: how many there are.
        tries: the most of them that a request is offered to.
        several: whether there are several, each with a gateway of its own.
    """

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._bases = [f"http://{each}" for each in options.gateways or ("tritonserver",)]
        self.servers = len(self._bases)
        self.tries = tries_of(options.gateways)
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

    async def ask(self, method: str, path: str, **request: Any) -> ClientResponse:
        """The next server's answer, to be closed by who asks; a ClientError if there is none."""
        self._turn = (self._turn + 1) % len(self._bases)
        return await self._session.request(method, self._bases[self._turn] + path, **request)

    async def close(self) -> None:
        await self._session.close()
