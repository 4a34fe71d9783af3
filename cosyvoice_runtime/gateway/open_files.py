"""Files that a gateway may have open: each connection is one."""

from __future__ import annotations

import resource

MAX_CONNECTIONS = 4096
RESERVED = 320
"""What the process itself has open, and twice 128 connections: so many are accepted at once before they are
counted, and while others are being closed."""
FEWEST_CONNECTIONS = 16


def most_connections(files_each: int) -> int:
    """How many connections fit below the limit of open files, which is raised as far as it may be.

    Args:
        files_each: that a connection takes at most.
    """
    wanted = RESERVED + files_each * MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(FEWEST_CONNECTIONS, (files - RESERVED) // files_each)
