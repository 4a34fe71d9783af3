"""What can go wrong, by what a caller can do about it."""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors of this package.

    Attributes:
        kind: short name for counting, such as ``unavailable`` or ``invalid_argument``.
        exit_code: of the commands.
    """

    kind = "error"
    exit_code = 1


class InvalidArgumentError(ClientError):
    """Something given to the client can't be used; nothing was sent."""

    kind = "local"
    exit_code = 2


class RefusedError(ClientError):
    """The server answered with an error: the same request will fail again."""

    def __init__(self, message: str, kind: str = "refused") -> None:
        super().__init__(message)
        self.kind = kind


class UnavailableError(ClientError):
    """The server can't be reached, or is too busy: try again later."""

    kind = "unavailable"
    exit_code = 3


class ServerTimeoutError(ClientError):
    """Nothing came from the server for too long."""

    kind = "timeout"
    exit_code = 4


UNAVAILABLE = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "503")
TIMEOUT = ("DEADLINE_EXCEEDED", "504")
PASSING = (
    "unavailable",
    "try again later",
    "shutting down",
    "exceeds maximum queue size",
    "request timeout expired",
    "has no available versions",
    "is not ready",
    "is not healthy",
    "server not ready",
)
"""What Triton and the models say when trying again can help. Errors within a stream come without a status."""


def server_error(status: str | None, message: str | None, server: str) -> ClientError:
    """The error for what a server, or the way to it, reported.

    Args:
        status: gRPC's (``StatusCode.UNAVAILABLE``) or HTTP's (``503``); None if only a message came.
        server: where the request went, for the text.
    """
    code = (status or "").removeprefix("StatusCode.")
    reason = (message or "no reason given").strip()
    text = f"{server}: {reason}"
    if code in UNAVAILABLE or (not code and any(words in reason.lower() for words in PASSING)):
        return UnavailableError(text)
    if code in TIMEOUT:
        return ServerTimeoutError(text)
    return RefusedError(text, code.lower() or "refused")
