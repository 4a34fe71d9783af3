"""How one model calls another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy.typing as npt

Outputs = dict[str, npt.NDArray[Any]]

STATUS_BY_TEXT = (
    (r"Exceeds maximum queue size|Request timeout expired|try again later", "UNAVAILABLE"),
    (r"is unknown; ", "NOT_FOUND"),
)
"""Statuses of known errors: BLS and streams lose them on the way."""
STATUS_NAMES = {"INVALID_ARGUMENT": "INVALID_ARG"}
"""gRPC's names of statuses that Triton calls otherwise."""


class CallError(Exception):
    """Another model answered with an error, which is passed on to the client.

    Attributes:
        status: name of the code in ``pb_utils.TritonError``.
    """

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = STATUS_NAMES.get(status, status)
        for pattern, known in STATUS_BY_TEXT:
            if re.search(pattern, message):
                self.status = known


class Calls(Protocol):
    """Requests to other models of this server, of batch size 1."""

    def call(self, model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = "") -> Outputs:
        """Run a model that answers once."""

    def stream(
        self, model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = ""
    ) -> Iterator[Outputs]:
        """Run a decoupled model; each response as it comes. To be read to its end."""

    def close(self) -> None:
        """No further calls."""
