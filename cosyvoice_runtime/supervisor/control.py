"""Control of a running server's models over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cosyvoice_runtime.supervisor.guarded_call import Check, keep_waiting
from cosyvoice_runtime.supervisor.http_call import ControlError, http_call

ANSWER_TIMEOUT_S = 10.0
LIVE_TIMEOUT_S, LIVE_TRIES = 5.0, 3


class Control:
    """Loads and unloads models.

    Whoever may load models may run code. These calls go through the server's own socket, which no other user
    reaches; the gateways pass none of them on.

    Args:
        url: ``unix:`` and the path of the server's socket of HTTP, or ``host:port``.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def live(self, check: Check) -> bool:
        try:
            self._ask_whether_live(check)
        except ControlError:
            return False
        return True

    def require_live(self, check: Check) -> None:
        """Asks over several connections, in case Triton gives one to a thread that waits for a load's end.

        Raises:
            ControlError: the server answers none of them in time.
        """
        for _ in range(LIVE_TRIES - 1):
            with suppress(ControlError):
                self._ask_whether_live(check)
                return
        self._ask_whether_live(check)

    def states(self, check: Check = keep_waiting) -> dict[str, str]:
        """State of every model of the repository: READY, LOADING, UNLOADING, UNAVAILABLE."""
        entries = self._request("POST", "repository/index", ANSWER_TIMEOUT_S, check)
        return {entry["name"]: entry.get("state", "UNAVAILABLE") for entry in entries}

    def load(self, model: str, timeout_s: float, check: Check = keep_waiting) -> None:
        """Load a model and wait for it.

        Args:
            check: ends the waiting with what it raises.

        Raises:
            ControlError: it can't be loaded; holds the model's own error.
        """
        self._request("POST", f"repository/models/{model}/load", timeout_s, check)

    def unload(self, model: str, check: Check = keep_waiting) -> None:
        """Refuse new requests to a model; the ones in flight finish (see :meth:`states`)."""
        self._request("POST", f"repository/models/{model}/unload", ANSWER_TIMEOUT_S, check)

    def _ask_whether_live(self, check: Check) -> None:
        self._request("GET", "health/live", LIVE_TIMEOUT_S, check)

    def _request(self, method: str, path: str, timeout_s: float, check: Check = keep_waiting) -> Any:
        answer = http_call(self._url, method, f"/v2/{path}", timeout_s, check)
        content = json.loads(answer.body) if answer.body else None
        if answer.status != 200:
            raise ControlError(content["error"] if isinstance(content, Mapping) else f"HTTP {answer.status}")
        return content
