"""Pages of other origins (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from cosyvoice_front.errors import foreign_page

EXPOSED = (
    "X-Request-Id",
    "X-Seed",
    "X-Start-Character",
    "X-Audio-Sample-Rate",
    "X-Sample-Rate",
    "X-Reference-Note",
    "X-AI-Generated",
    "X-Should-Retry",
    "Retry-After",
    "Retry-After-Ms",
)
"""Headers of answers that a page may read. It reads a few others anyway, such as Content-Type."""


class Cors(CORSMiddleware):
    """Lets pages of these origins ask, and tells others' which setting names them.

    Cookies say nothing here, so that browsers need not send any.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=EXPOSED,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        origin = request_headers["origin"]
        if self.is_allowed_origin(origin):
            return super().preflight_response(request_headers)
        refusal = foreign_page(origin)
        return JSONResponse(refusal.body(), refusal.status)
