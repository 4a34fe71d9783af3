"""Where the wires are served."""

from __future__ import annotations

from fastapi import FastAPI, Request, WebSocket
from starlette.responses import Response

from cosyvoice_front.described import described
from cosyvoice_front.wires.cartesia import Cartesia
from cosyvoice_front.wires.cartesia_bytes import speak_bytes
from cosyvoice_front.wires.cartesia_messages import BytesBody
from cosyvoice_front.wires.omni import Omni
from cosyvoice_front.wires.serve import serve

BYTES = "/tts/bytes"


def add_wires(app: FastAPI) -> None:
    @app.post(BYTES, openapi_extra={"requestBody": described(BYTES, BytesBody)})
    async def cartesia_bytes(request: Request) -> Response:
        return await speak_bytes(request.app.state.front, request)

    @app.websocket("/tts/websocket")
    async def cartesia(websocket: WebSocket) -> None:
        await serve(websocket, websocket.app.state.front, Cartesia)

    @app.websocket("/v1/audio/speech/stream")
    async def omni(websocket: WebSocket) -> None:
        await serve(websocket, websocket.app.state.front, Omni)
