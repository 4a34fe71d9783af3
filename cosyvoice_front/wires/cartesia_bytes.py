"""``POST /tts/bytes``: a whole text to Cartesia's containers, streamed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from cosyvoice_client.encoders import content_type
from cosyvoice_front import audit, request_id
from cosyvoice_front.caller import owner_by_any
from cosyvoice_front.errors import ApiError
from cosyvoice_front.front import HEADERS, Front
from cosyvoice_front.json_object import read_object
from cosyvoice_front.response import StreamedResponse
from cosyvoice_front.speech import check_text
from cosyvoice_front.spoken import Tally, encoded, placed
from cosyvoice_front.wires.cartesia_messages import BytesBody, RawFormat, http_error, version_of
from cosyvoice_front.wires.messages import read


class CartesiaResponse(StreamedResponse):
    """A streamed answer whose refusals are Cartesia's."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except ApiError as error:
            await refusal(error, Headers(scope=scope))(scope, receive, send)


async def speak_bytes(front: Front, request: Request) -> Response:
    try:
        version_of(request)
        owner = owner_by_any(front, request)
        content = read_object(await request.body(), "body")
        return await _speech(front, read(BytesBody, content), owner)
    except ApiError as error:
        return refusal(error, request.headers)


async def _speech(front: Front, body: BytesBody, owner: str) -> Response:
    settings = front.settings.front
    check_text(body.transcript, settings.max_text_characters, "transcript")
    body.check_model(settings)
    voice = await front.voices.server_name(body.voice.id, owner)
    request, tally = body.request(voice, body.transcript), Tally()
    request = replace(request, **await front.reading(body, request, owner))
    audit.current().speaks(request, body.output_format.container)
    make = partial(body.output_format.encoder, body.target_lufs)
    pieces = encoded(front.chunks(request, owner), make, front.pool, tally)
    return CartesiaResponse(
        placed(pieces, front.place(owner, len(body.transcript), tally)),
        {**HEADERS, "X-Seed": str(request.seed), "X-Audio-Sample-Rate": str(body.output_format.sample_rate)},
        _media_type(body),
        settings.stalled_client_timeout_s,
    )


def _media_type(body: BytesBody) -> str:
    output = body.output_format
    if isinstance(output, RawFormat):
        return f"audio/pcm;rate={output.sample_rate};encoding={output.encoding}"
    return content_type(output.container, output.sample_rate)


def refusal(error: ApiError, asked: Headers) -> Response:
    body = http_error(error, request_id.current.get())
    return JSONResponse(body, error.status, error.headers(asked))
