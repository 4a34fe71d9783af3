"""A server that is started again when it dies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cosyvoice_runtime.supervisor.errors import PreflightError, ServerDiedError, StartError
from cosyvoice_runtime.supervisor.server import Server

logger = logging.getLogger("supervisor")

RETRY_S = 1.0
"""The pause before the next try, when a server that was up could not be started again."""
WINDOW_S = 600.0
"""The time in which a server is restarted ``max_restarts`` times at most."""


def keep_up(server: Server, on_up: Callable[[], None] = lambda: None) -> None:
    """Run a server until it is told to stop, and restart it when it dies.

    Args:
        on_up: called each time that the server is up.

    Raises:
        SupervisorError: it did not come up, or died too often.
    """
    restarts: list[float] = []
    was_up = False
    while True:
        try:
            with server:
                was_up = True
                on_up()
                server.wait()
            return
        except (ServerDiedError, StartError, PreflightError, OSError) as error:
            restarts = [at for at in restarts if time.monotonic() - at < WINDOW_S]
            # A server that was never up would fail again. One that was up may have lost a model while it
            # loaded, or its ports may still be in use for a moment.
            if not was_up or len(restarts) >= server.settings.max_restarts:
                raise
            restarts.append(time.monotonic())
            logger.warning("starting again: %s", error)
            if not isinstance(error, ServerDiedError):
                time.sleep(RETRY_S)
