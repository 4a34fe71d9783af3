"""The routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from cosyvoice_front.audit import AuditedRequests
from cosyvoice_front.bodies import BodyLimits
from cosyvoice_front.caller import owner_by_header
from cosyvoice_front.cors import Cors
from cosyvoice_front.described import described
from cosyvoice_front.errors import ApiError, broken, model_not_found, no_such_page, overloaded, wrong_method
from cosyvoice_front.front import Front, open_front
from cosyvoice_front.metrics import MEDIA_TYPE, CountedRequests, Metrics
from cosyvoice_front.metrics_port import metrics_port
from cosyvoice_front.page_files import add_page
from cosyvoice_front.reading import read_body
from cosyvoice_front.request_id import RequestIds
from cosyvoice_front.server_client import Upstream
from cosyvoice_front.slashes import WithoutSlash
from cosyvoice_front.speech import SpeechBody, read_speech
from cosyvoice_front.voice_upload import add_voice, remove_voice
from cosyvoice_front.wires.routes import add_wires
from cosyvoice_runtime import __version__
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.process.spans import FRONT, open_spans
from cosyvoice_runtime.settings import Settings

SPEECH = "/v1/audio/speech"

Handler = TypeVar("Handler", bound=Callable[..., Any])


def create_app(settings: Settings, upstream: Upstream | None = None) -> FastAPI:
    """Create the front's application.

    Args:
        settings: those of the front.
        upstream: speaks in place of the server that the settings name.

    Raises:
        InvalidInput: the audit log can't be written, or spans can't be sent.
    """

    metrics = Metrics()
    audit = AuditLog(settings.front.audit_file, "front.audit_file")
    spans = open_spans(FRONT)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_front(settings, metrics, audit, upstream) as front:
            app.state.front = front
            with metrics_port(settings.front, metrics):
                yield
        if spans is not None:
            await asyncio.to_thread(spans.close)

    # No pages of documentation: they load programs from elsewhere.
    app = FastAPI(title="CosyVoice", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False  # WithoutSlash
    app.state.is_leaving = False
    _add_speech(app)
    _add_voices(app)
    _add_lists(app)
    _add_probes(app)
    add_wires(app)
    _add_errors(app)
    front = settings.front
    if front.page:
        add_page(app)
    app.add_middleware(BodyLimits, most_bytes=front.max_request_mib << 20, timeout_s=front.arrival_timeout_s)
    # Around all there is, the answer to what nobody foresaw included, which add_middleware would not be.
    counted = CountedRequests(Cors(app.build_middleware_stack(), front.cors_origins), metrics)
    app.middleware_stack = RequestIds(WithoutSlash(AuditedRequests(counted, audit, spans)))
    return app


def _add_speech(app: FastAPI) -> None:
    async def speech(request: Request) -> Response:
        front = _front(request)
        owner = _owner(request)
        body = read_speech(await request.body(), front.settings.front)
        return await front.speak(body, owner)

    # FastAPI's own route describes the handler, which has nothing for FastAPI to solve: doing so takes a
    # quarter of the time that a request takes in this process. So Starlette's is the first, and serves.
    app.router.routes.insert(0, PlainRoute(SPEECH, speech, methods=["POST"]))
    app.post(SPEECH, openapi_extra={"requestBody": described(SPEECH, SpeechBody)})(speech)

    @app.post("/v1/audio/read")
    async def read(request: Request) -> dict[str, Any]:
        front = _front(request)
        owner = _owner(request)
        return await front.read(read_body(await request.body(), front.settings.front), owner)


class PlainRoute(Route):
    """A route of Starlette's, of which the request knows as it does of FastAPI's."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        await super().handle(scope, receive, send)


def _add_voices(app: FastAPI) -> None:
    @_reading(app, "/v1/audio/voices")
    async def voices(request: Request) -> dict[str, Any]:
        listed = await _front(request).voices.listed(_reader(request))
        return {"object": "list", "voices": listed, "data": listed}

    @app.post("/v1/audio/voices")
    async def new_voice(request: Request) -> dict[str, Any]:
        return await add_voice(_front(request), _owner(request), request)

    @app.delete("/v1/audio/voices/{voice}")
    async def delete_voice(request: Request, voice: str) -> dict[str, Any]:
        return await remove_voice(_front(request), _owner(request), voice)


def _add_lists(app: FastAPI) -> None:
    @_reading(app, "/v1/models", "/v1/audio/models")
    async def models(request: Request) -> dict[str, Any]:
        _reader(request)
        names = _front(request).settings.front.models
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "cosyvoice"} for name in names]
        return {"object": "list", "models": listed, "data": listed}

    @_reading(app, "/v1/models/{model}")
    async def model(request: Request, model: str) -> dict[str, Any]:
        for entry in (await models(request))["data"]:
            if entry["id"] == model:
                return entry
        raise model_not_found(model)


def _add_probes(app: FastAPI) -> None:
    @_reading(app, "/v1", "/test", "/health")
    async def alive() -> dict[str, str]:
        return {"status": "ok"}

    @_reading(app, "/health/ready")
    async def ready(request: Request) -> dict[str, str]:
        if request.app.state.is_leaving:
            raise overloaded("The front is being stopped.")
        await _front(request).server.check()
        return {"status": "ok"}

    @_reading(app, "/metrics")
    async def metrics(request: Request) -> Response:
        _owner(request)
        return Response(_front(request).metrics.page(), media_type=MEDIA_TYPE)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        # What is left of a body that nobody read would be taken for the next request.
        headers = error.headers(request.headers) | (
            {"connection": "close"} if error.status in (408, 413) else {}
        )
        return JSONResponse(error.body(), error.status, headers)

    @app.exception_handler(HTTPException)
    async def not_served(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        if error.status_code == 404:
            return JSONResponse(no_such_page(path).body(), 404, error.headers)
        if error.status_code == 405:
            allowed = _methods(request)
            refusal = wrong_method(request.method, path, allowed)
            return JSONResponse(refusal.body(), 405, {"Allow": allowed})
        return JSONResponse(
            ApiError(error.status_code, error.detail).body(), error.status_code, error.headers
        )

    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # which nobody reads

    @app.exception_handler(Exception)
    async def failed(_request: Request, _error: Exception) -> Response:
        return JSONResponse(broken().body(), 500)


def _reading(app: FastAPI, *paths: str) -> Callable[[Handler], Handler]:
    """Serve GET of these paths, and HEAD: the same without its body, which uvicorn leaves out."""

    def add(handler: Handler) -> Handler:
        for path in paths:
            app.get(path)(handler)
            app.head(path, include_in_schema=False)(handler)
        return handler

    return add


def _methods(request: Request) -> str:
    """All that the path is served for; routes of one path have a method each."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in routes for method in route.methods}))


def _front(request: Request) -> Front:
    return request.app.state.front


def _owner(request: Request) -> str:
    """Return the caller's name; an ApiError tells of an unknown key or of a page of another site."""
    return owner_by_header(_front(request), request)


def _reader(request: Request) -> str | None:
    """Who asks for a list; None for somebody without a key where lists are open."""
    try:
        return _owner(request)
    except ApiError:
        if not _front(request).settings.front.open_lists:
            raise
        return None
