"""The limit on open files, which bounds the connections of a gateway."""

from __future__ import annotations

import resource

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
