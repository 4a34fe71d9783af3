"""Ports of this machine for programs that can't choose one themselves, or must come back at the same one."""

from __future__ import annotations

import os
import random
import socket

RANGE = range(30_000, 32_768)
"""Between those that servers of other tests take and those of outgoing connections."""
WORKERS = 16
taken: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at; never the same twice in one process."""
    own = RANGE[_worker() :: WORKERS]
    for port in random.SystemRandom().sample(own, len(own)):
        if port not in taken and _is_free(port):
            taken.add(port)
            return port
    raise OSError(f"no port from {RANGE[0]} to {RANGE[-1]} is free")


def _worker() -> int:
    """The number of this process among those of pytest-xdist, which look for ports at the same time."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
