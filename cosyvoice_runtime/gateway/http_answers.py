"""The answers of tritonserver over HTTP, read in pieces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from aiohttp import ClientResponse

from cosyvoice_runtime.errors import split_status
from cosyvoice_runtime.gateway.policy import FOR_NOW, RefusedError
from cosyvoice_runtime.gateway.wording import models_status, reworded, reworded_in_stream

HTTP_OF = {
    "INVALID_ARGUMENT": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 413,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
"""The HTTP code of each status; 500 for all others."""
STATUS_OF = {code: status for status, code in HTTP_OF.items()}
EVENT_END, ERROR_EVENT = b"\n\n", b'data: {"error"'


async def pieces_of(answer: ClientResponse) -> AsyncIterator[bytes]:
    """The pieces of an answer, as they arrive.

    Raises:
        RefusedError: it is a stream whose first event refuses the request for now.
    """
    if answer.content_type != "text/event-stream":
        return answer.content.iter_any()
    events = _events(answer)
    first = await anext(events, b"")
    if first.startswith(ERROR_EVENT):
        status, text = split_status(error_text(first))
        if status == FOR_NOW:
            raise RefusedError(status, text)
    return _joined(first, events)


async def in_one_piece(answer: bytes) -> AsyncIterator[bytes]:
    yield answer


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


async def _events(answer: ClientResponse) -> AsyncIterator[bytes]:
    """The events of a stream, each of them complete."""
    waiting = bytearray()
    async for piece in answer.content.iter_any():
        seen = max(0, len(waiting) - 1)
        waiting += piece
        end = waiting.rfind(EVENT_END, seen)
        if end >= 0:
            for event in bytes(waiting[:end]).split(EVENT_END):
                yield _told_in_stream(event) + EVENT_END
            del waiting[: end + len(EVENT_END)]
    if waiting:
        yield bytes(waiting)


def _told_in_stream(event: bytes) -> bytes:
    if not event.startswith(ERROR_EVENT):
        return event
    text = error_text(event.removeprefix(b"data: "))
    return b"data: " + json.dumps({"error": reworded_in_stream(text)}).encode()


def error_text(body: bytes) -> str:
    """The text of an error, or of an event that holds one."""
    try:
        return str(json.loads(body.removeprefix(b"data: "))["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


async def require_success(answer: ClientResponse) -> None:
    """Raise the refusal that an answer tells, if it is one."""
    if answer.status != 200:
        status = STATUS_OF.get(answer.status, "INTERNAL")
        text = error_text(await answer.read())
        # With infer the status is the model's own, and its text may begin like a status.
        said = (status, text) if answer.url.path.endswith("/infer") else models_status(status, text)
        raise RefusedError(*reworded(*said))
