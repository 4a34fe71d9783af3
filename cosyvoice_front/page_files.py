"""The page at ``/``: files of ``page/``, read once, with a policy that lets nothing else into it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response

from cosyvoice_front.errors import no_such_page

FOLDER = Path(__file__).parent / "page"
START = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "media-src blob:",  # a recording, to hear before it is sent
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # kept, but asked about each time: files of two versions don't mix
}


@dataclass(frozen=True)
class PageFile:
    """
    Attributes:
        tag: changes with the content.
    """

    content: bytes
    media_type: str
    tag: str

    @classmethod
    def read(cls, path: Path) -> PageFile:
        content = path.read_bytes()
        return cls(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def answer(self, known: str) -> Response:
        """Answer with the file, or with status 304 where the browser has it.

        Args:
            known: the browser's tags, as ``If-None-Match`` lists them.
        """
        headers = {**HEADERS, "ETag": self.tag}
        if self.tag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its parts below ``/page/``."""
    files = {path.name: PageFile.read(path) for path in FOLDER.iterdir() if path.suffix in TYPES}

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def start(request: Request) -> Response:
        return await part(request, START)

    @app.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def part(request: Request, name: str) -> Response:
        if name not in files:
            raise no_such_page(request.url.path)
        return files[name].answer(request.headers.get("if-none-match", ""))
