"""Why a server does not run, each with the exit code of the supervisor's command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cosyvoice_runtime.errors import CosyVoiceError

UNDRAINED_EXIT_CODE = 7
"""The server stopped when told to, but some requests in flight were cut off."""


class SupervisorError(CosyVoiceError):
    """Base of the errors below."""

    exit_code: ClassVar[int] = 1


class PreflightError(SupervisorError):
    """The server was not started, because it could not have run.

    Attributes:
        problems: one sentence each.
    """

    exit_code = 3

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class StartError(SupervisorError):
    """The server or one of its models did not come up."""

    exit_code = 4


class ServerDiedError(SupervisorError):
    """The server process ended by itself, or had better start anew."""

    exit_code = 5


class ServerStuckError(ServerDiedError):
    """The server has requests that only its own end ends, so nothing is gained by waiting for them."""


class WatchError(SupervisorError):
    """The watch over the models failed, so that nobody would reload them."""

    exit_code = 8


class StopRequestedError(SupervisorError):
    """What was under way was given up, because the server was told to stop."""

    exit_code = 0
