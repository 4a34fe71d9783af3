"""Errors, by what a caller can do about them."""

from __future__ import annotations

import re


class ClientError(Exception):
    """Base of all errors of this package.

    Attributes:
        kind: short name for counting, such as ``unavailable`` or ``invalid_argument``.
        exit_code: of the commands.
    """

    kind = "error"
    exit_code = 1

    def name(self, place: str) -> None:
        """Say where it happened, in front of what."""
        self.args = (f"{place}: {self}",)


class InvalidArgumentError(ClientError):
    """Something given to the client can't be used; nothing was sent."""

    kind = "local"
    exit_code = 2


class RefusedError(ClientError):
    """The server answered with an error: the same request will fail again."""

    def __init__(self, message: str, kind: str = "refused") -> None:
        super().__init__(message)
        self.kind = kind


RETRY_AFTER = re.compile(r"; try again in (\d+(?:\.\d+)?) s$")
"""End of a full server's message, with the seconds to wait."""


class UnavailableError(ClientError):
    """The server can't be reached, or is too busy: try again later.

    Attributes:
        retry_after_s: when, if the server says so. Whoever comes back then has its turn.
        tries: servers that were asked.
    """

    kind = "unavailable"
    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__(message)
        told = RETRY_AFTER.search(message)
        self.retry_after_s = float(told[1]) if told else None
        self.tries = 1


class LostError(UnavailableError):
    """The connection, or the server behind it, is gone: it has not refused, and another one may answer."""


class ServerTimeoutError(ClientError):
    """Nothing came from the server for too long."""

    kind = "timeout"
    exit_code = 4


UNAVAILABLE = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
TIMEOUT = ("DEADLINE_EXCEEDED",)
GRPC_STATUSES = {
    "400": "INVALID_ARGUMENT",
    "404": "NOT_FOUND",
    "409": "ALREADY_EXISTS",
    "499": "CANCELLED",
    "500": "INTERNAL",
    "501": "UNIMPLEMENTED",
    "503": "UNAVAILABLE",
    "504": "DEADLINE_EXCEEDED",
}
"""gRPC's name for each HTTP status of Triton."""
STATUSES = frozenset([*GRPC_STATUSES.values(), *UNAVAILABLE, "UNKNOWN"])


def server_error(status: str | None, message: str | None, server: str) -> ClientError:
    """The error for what a server, or the way to it, reported. The status alone decides which it is.

    Args:
        status: gRPC's (``StatusCode.UNAVAILABLE`` or ``UNAVAILABLE``) or HTTP's (``503``); None for unknown.
        server: where the request went, for the text.
    """
    given = (status or "UNKNOWN").removeprefix("StatusCode.")
    code = GRPC_STATUSES.get(given, given)
    text = f"{server}: {(message or 'no reason given').strip()}"
    if code in UNAVAILABLE:
        return UnavailableError(text)
    if code in TIMEOUT:
        return ServerTimeoutError(text)
    return RefusedError(text, code.lower())


def split_status(message: str) -> tuple[str | None, str]:
    """Status and text of an error within a stream, which Triton sends as a message alone.

    The entry models begin the message with the status: ``UNAVAILABLE: 2 utterances are in progress``. Nothing
    behind that first word matters, so that no text which an error repeats can change the status. What Triton
    itself refuses, or a server that doesn't name the status, has none.
    """
    status, separator, text = message.partition(": ")
    return (status, text) if separator and status in STATUSES else (None, message)
