"""The limits of a gateway: concurrent calls, pending bytes and open connections."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from cosyvoice_runtime.gateway.policy import RefusedError

CALLS_RETRY_S = 5.0
"""This many calls mean an attack or a fault, which lasts for a while."""


class CallLimit:
    """Counts the calls of one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a call while the block runs.

        Raises:
            RefusedError: the limit is reached.
        """
        if self._count >= self._limit:
            text = f"{self._limit} calls are in progress, the limit; try again in {CALLS_RETRY_S:g} s"
            raise RefusedError("UNAVAILABLE", text)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


FREE_OF_CHARGE = 65_536
"""Requests up to this size are not counted: a text with a named voice always gets through."""
BYTES_RETRY_S = 2.0
"""A request counts until its answer begins, which takes most requests less than this."""


class PendingBytes:
    """Counts the bytes of requests that tritonserver has not begun to answer, for one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def take(self, size: int) -> int:
        """Count a request, and return the bytes to :meth:`give_back`.

        Raises:
            RefusedError: too many large requests are pending.
        """
        if size <= FREE_OF_CHARGE:
            return 0
        if self.count and self.count + size > self._limit:
            text = f"too many large requests at once; try again in {BYTES_RETRY_S:g} s"
            raise RefusedError("UNAVAILABLE", text)
        self.count += size
        return size

    def give_back(self, size: int) -> None:
        self.count -= size


MAX_CONNECTIONS = 4096
RESERVED = 320
"""Files of the process itself, and twice 128 connections: up to 128 are accepted before they are counted,
while others are being closed."""
FEWEST_CONNECTIONS = 16


def most_connections(files_each: int) -> int:
    """The most connections within the limit on open files, which is raised as far as allowed.

    Args:
        files_each: the most files of one connection.
    """
    wanted = RESERVED + files_each * MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(FEWEST_CONNECTIONS, (files - RESERVED) // files_each)
