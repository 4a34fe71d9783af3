"""The errors of a server, each with the exit code of the supervisor's command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cosyvoice_runtime.errors import CosyVoiceError

UNDRAINED_EXIT_CODE = 7
"""The server stopped when told to, but some requests in flight were cut off."""


class SupervisorError(CosyVoiceError):
    """The base of the errors below."""

    exit_code: ClassVar[int] = 1


class PreflightError(SupervisorError):
    """The server was not started, because it could not have run; ``problems`` has a sentence for each."""

    exit_code = 3

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class StartError(SupervisorError):
    """The server or one of its models did not come up."""

    exit_code = 4


class ServerDiedError(SupervisorError):
    """The server process ended by itself, or must be restarted."""

    exit_code = 5


class ServerStuckError(ServerDiedError):
    """The server has requests that end only with it, so waiting for them is useless."""


class WatchError(SupervisorError):
    """The watch over the models failed, so models would no longer be reloaded."""

    exit_code = 8


class StopRequestedError(SupervisorError):
    """The operation was cancelled, because the server was told to stop."""

    exit_code = 0
