"""Errors, as OpenAI's API says them."""

from __future__ import annotations

import logging
import re
from datetime import date
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import Headers

from cosyvoice_client import ClientError, ServerTimeoutError, UnavailableError
from cosyvoice_front.retries import retry_after_ms
from cosyvoice_front.shown import shown

logger = logging.getLogger(__name__)

INVALID, SERVER = "invalid_request_error", "server_error"
OVERLOADED = 503
PARAMETERS = {
    "target_text": "input",
    "voice": "voice",
    "instruct_text": "instructions",
    "reference_wav": "ref_audio",
    "reference_sample_rate": "ref_audio",
    "reference_text": "ref_text",
    "speed": "speed",
    "seed": "seed",
    "language": "language",
    "text_markup": "text_markup",
    "lexicon": "lexicon",
    "trim_silence": "trim_silence",
    "start_character": "start_character",
    "verify": "verify",
}
"""The request's name of each input that the server's errors begin with."""
REFUSALS = ("invalid_argument", "not_found")
"""Kinds of the client library's errors that are the request's own fault."""
WITHDRAWN = "cancelled"
"""Kind of the error by which the server ends an utterance whose text doesn't go on."""


THE_SERVERS_OWN = re.compile(r"; try again(?: later| in [\d.]+ s)?$")
"""The end of what the server says that is busy. Else gRPC speaks, of inner addresses and names."""
RETRY_AFTER_MS = 1000
"""When clients are told to come back after a refusal, unless the server says when."""
AWAY = "The speech server is away; try again later."


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        param: the part of the request that is at fault.
        code: a short name for programs.
        retry_after_ms: when to come back; None where that doesn't help.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.retry_after_ms = retry_after_ms

    def body(self) -> dict[str, Any]:
        """``{"error": {...}}``."""
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.code}}

    def headers(self, asked: Headers) -> dict[str, str]:
        """When to come back, in both spellings that clients read.

        Args:
            asked: headers of the request.
        """
        if self.retry_after_ms is None:
            return {}
        wait_ms = retry_after_ms(self.retry_after_ms, asked)
        return {"retry-after-ms": str(wait_ms), "retry-after": str(-(-wait_ms // 1000))}

    def retry(self) -> dict[str, int]:
        """The same as a field of a websocket's message."""
        return {} if self.retry_after_ms is None else {"retry_after_ms": self.retry_after_ms}


class GoneError(Exception):
    """The listener has left, or doesn't read."""


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def model_not_found(model: str) -> ApiError:
    return ApiError(404, f"The model {model!r} does not exist.", param="model", code="model_not_found")


def voice_not_found(voice: str) -> ApiError:
    return ApiError(404, f"The voice {shown(voice)} does not exist.", param="voice", code="voice_not_found")


def no_such_page(path: str) -> ApiError:
    return ApiError(404, f"There is no {path} here.", code="not_found")


def wrong_method(method: str, path: str, allowed: str) -> ApiError:
    return ApiError(405, f"{method} {path} is not served: {allowed} are.", code="method_not_allowed")


def no_key() -> ApiError:
    return ApiError(401, "No or an unknown API key: send Authorization: Bearer KEY.", code="invalid_api_key")


def expired_key(until: date) -> ApiError:
    return ApiError(401, f"This API key was good until {until} (UTC).", code="expired_api_key")


def foreign_page(origin: str) -> ApiError:
    message = f"Pages of {origin} may not call this server; front.cors_origins names those that may."
    return ApiError(403, message, code="foreign_origin")


def foreign_host(host: str) -> ApiError:
    message = (
        f"Host: {host!r}: without keys this server is called by localhost, by an address, or by a name in "
        "front.allowed_hosts."
    )
    return ApiError(403, message, code="foreign_host")


def too_large(limit: str, param: str | None = None) -> ApiError:
    return ApiError(413, f"The request is too large: at most {limit}.", param=param, code="request_too_large")


def headers_too_large(most_bytes: int) -> ApiError:
    message = f"The headers of the request are too large: at most {most_bytes >> 10} KiB."
    return ApiError(431, message, code="headers_too_large")


def timed_out(message: str) -> ApiError:
    """The client has left something unsaid for too long."""
    return ApiError(408, message, code="timeout")


def rate_limited(message: str, retry_after_ms: int | None = None) -> ApiError:
    return ApiError(
        429,
        message,
        type="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after_ms=retry_after_ms or RETRY_AFTER_MS,
    )


def overloaded(message: str, retry_after_ms: int | None = None) -> ApiError:
    wait_ms = retry_after_ms or RETRY_AFTER_MS
    return ApiError(OVERLOADED, message, type=SERVER, code="overloaded", retry_after_ms=wait_ms)


def broken() -> ApiError:
    """A fault of ours, of which the log says more."""
    return ApiError(500, "The speech could not be made.", type=SERVER, code="internal_error")


def storage_failed() -> ApiError:
    """The disk of the voices is full or can't be written, of which the log says more."""
    message = "The server can't write its voices: its disk is full, or read-only. Nothing was changed."
    return ApiError(507, message, type=SERVER, code="insufficient_storage")


def of_validation(error: ValidationError) -> ApiError:
    """The first problem of a body that is not what it should be."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = _field(*problem["loc"])
    if problem["type"] == "missing":
        return invalid(field, f"{field}: it is missing.")
    return invalid(field, f"{field}: {shown(problem['input'])}: {problem['msg']}.")


def _field(field: int | str, *inside: int | str) -> str:
    """The name of a field, or of the field of an object in a list, by the way to it."""
    if not inside or not isinstance(inside[0], int):
        return str(field)
    return f"{field}[{inside[0]}]" + (f".{inside[1]}" if len(inside) > 1 else "")


def of_client(error: ClientError, server: str) -> ApiError:
    """The API's error for one that the speech server, or the way to it, reported.

    Args:
        server: its address, which the client's errors begin with and nobody outside needs to know.
    """
    message = str(error).removeprefix(f"{server}: ")
    if isinstance(error, UnavailableError):
        told_s = error.retry_after_s
        if not THE_SERVERS_OWN.search(message):
            logger.warning("%s, clients are told: %s", error, AWAY)
            message = AWAY
        return overloaded(message, None if told_s is None else round(1000 * told_s))
    if isinstance(error, ServerTimeoutError):
        return ApiError(504, message, type=SERVER, code="timeout", retry_after_ms=RETRY_AFTER_MS)
    if error.kind == WITHDRAWN:
        return timed_out(message)
    if error.kind not in REFUSALS:
        return broken()
    field, colon, rest = message.partition(":")
    param = field if field.startswith("turn") else PARAMETERS.get(field)
    message = f"{param or field}{colon}{rest}"
    if param is not None and param.endswith("voice"):
        return ApiError(404, message, param=param, code="voice_not_found")
    return invalid(param, message)
