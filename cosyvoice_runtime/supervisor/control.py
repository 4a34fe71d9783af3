"""Control of a running server's models over HTTP."""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.errors import CosyVoiceError

PROTECTED = "model-repository,trace,logging"
KEY = "supervisor-key"


class ControlError(CosyVoiceError):
    """The server refused, or did not answer."""


class Control:
    """Loads and unloads models.

    Whoever may load models may run code, so these calls carry a key made at start that nobody else has.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._secret = secrets.token_hex(16)

    @property
    def arguments(self) -> list[str]:
        restriction = f"{PROTECTED}:{KEY}={self._secret}"
        return [f"--http-restricted-api={restriction}", f"--grpc-restricted-protocol={restriction}"]

    def live(self) -> bool:
        try:
            self._request("GET", "health/live", timeout_s=2.0)
        except ControlError:
            return False
        return True

    def states(self) -> dict[str, str]:
        """State of every model of the repository: READY, LOADING, UNLOADING, UNAVAILABLE."""
        entries = self._request("POST", "repository/index", timeout_s=10.0)
        return {entry["name"]: entry.get("state", "UNAVAILABLE") for entry in entries}

    def load(self, model: str, timeout_s: float) -> None:
        """Load a model and wait for it.

        Raises:
            ControlError: it can't be loaded; holds the model's own error.
        """
        self._request("POST", f"repository/models/{model}/load", timeout_s)

    def unload(self, model: str, timeout_s: float = 10.0) -> None:
        """Refuse new requests to a model; the ones in flight finish (see :meth:`states`)."""
        self._request("POST", f"repository/models/{model}/unload", timeout_s)

    def _request(self, method: str, path: str, timeout_s: float) -> Any:
        connection = http.client.HTTPConnection(self._url, timeout=timeout_s)
        try:
            connection.request(method, f"/v2/{path}", headers={KEY: self._secret})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(f"no answer to {path}: {error!r}") from error
        finally:
            connection.close()
        answer = json.loads(body) if body else None
        if response.status != 200:
            raise ControlError(answer["error"] if isinstance(answer, Mapping) else f"HTTP {response.status}")
        return answer
