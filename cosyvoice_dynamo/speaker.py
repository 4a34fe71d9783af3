"""Answers to the requests that Dynamo's frontend gives this worker."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from dynamo.common.protocols.audio_protocol import AudioData, NvAudioSpeechResponse
from dynamo.llm.exceptions import HttpError, InvalidArgument
from dynamo.runtime import Context

from cosyvoice_dynamo.request import read_request
from cosyvoice_front import request_id
from cosyvoice_front.errors import OVERLOADED, ApiError
from cosyvoice_front.front import Front
from cosyvoice_front.keys import EVERYBODY

ASK_AGAIN = (429, OVERLOADED, 504)
"""Statuses of a request that may be repeated."""


class Speaker:
    """Speaks through a front, which has no socket of its own."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def answer(self, asked: dict[str, Any], context: Context) -> AsyncIterator[dict[str, Any]]:
        """Pieces of the file, in order, until its end or until the client has left.

        Args:
            asked: the request's fields.
            context: says whether anybody still waits for the answer.

        Raises:
            InvalidArgument: the request can't be spoken.
            HttpError: the server has no room, or fails.
        """
        request_id.current.set(context.id())
        try:
            body = read_request(asked, self._front.settings.front)
            speech = await self._front.speech(body, EVERYBODY)
            async for piece in while_wanted(speech.pieces, context):
                yield _response(context.id(), body.model, body.response_format, piece)
        except ApiError as error:
            raise told(error) from error


async def while_wanted(pieces: AsyncGenerator[bytes, None], context: Context) -> AsyncGenerator[bytes, None]:
    """The pieces until the client leaves; then the generator is closed at once, whatever it waits for."""
    left = asyncio.ensure_future(context.async_killed_or_stopped())
    try:
        async with aclosing(pieces):
            while (piece := await _next(pieces, left)) is not None:
                yield piece
    finally:
        left.cancel()


async def _next(pieces: AsyncGenerator[bytes, None], left: asyncio.Future[Any]) -> bytes | None:
    """The next piece; None where there is none, or the client has left before."""
    piece = asyncio.ensure_future(anext(pieces, None))
    try:
        await asyncio.wait({piece, left}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not piece.done():
            piece.cancel()
            await asyncio.gather(piece, return_exceptions=True)
    return None if piece.cancelled() else piece.result()


def told(error: ApiError) -> Exception:
    """The error of Dynamo's that its frontend makes the best of.

    It forwards the words of an InvalidArgument alone, always as a 400. It turns a 504 into a 500, and leaves
    the worker without requests for some seconds, so a silent server is a 503 here.
    """
    if error.status in ASK_AGAIN:
        status = OVERLOADED if error.status == 504 else error.status
        return HttpError(status, f"{error} retry-after-ms: {error.retry_after_ms}")
    return HttpError(error.status, str(error)) if error.status >= 500 else InvalidArgument(str(error))


def _response(name: str, model: str, output_format: str, piece: bytes) -> dict[str, Any]:
    data = AudioData(output_format=output_format, b64_json=base64.b64encode(piece).decode())
    return NvAudioSpeechResponse(id=name, model=model, created=int(time.time()), data=[data]).model_dump()
