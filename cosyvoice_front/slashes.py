"""Paths that end with a slash."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class WithoutSlash:
    """Serves a path with a slash at its end as the path without.

    A redirect would name http behind a proxy that ends TLS, and some clients send no body a second time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "path" in scope:
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)
