"""Ports of this machine for programs that can't choose one themselves, or must come back at the same one."""

from __future__ import annotations

import random
import socket

RANGE = range(30_000, 32_768)
"""Between those that servers of other tests take and those of outgoing connections."""
kept: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at, and that no other process gets here while this one runs."""
    for port in random.SystemRandom().sample(RANGE, len(RANGE)):
        if _is_free(port):
            return port
    raise OSError(f"no port from {RANGE[0]} to {RANGE[-1]} is free")


def _is_free(port: int) -> bool:
    """Whether it is; then it is kept by a Unix socket of its name, which ends with this process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0cosyvoice-drills-{port}")
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        claim.close()
        return False
    kept.append(claim)
    return True
