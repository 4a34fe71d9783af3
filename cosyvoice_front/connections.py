"""uvicorn's connections, with a limit on the time that a request's headers take to come."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def connections(header_timeout_s: float) -> type[HttpToolsProtocol]:
    """The class of connections for uvicorn's setting ``http``."""

    class PunctualConnection(HttpToolsProtocol):
        """Closes itself unless its first request's headers come in time.

        uvicorn itself limits only the time between two requests.
        """

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._headers_due = self.loop.call_later(header_timeout_s, transport.close)

        def on_headers_complete(self) -> None:
            self._headers_due.cancel()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers_due.cancel()
            super().connection_lost(exc)

        def handle_websocket_upgrade(self) -> Any:
            self._headers_due.cancel()
            return super().handle_websocket_upgrade()

    return PunctualConnection
