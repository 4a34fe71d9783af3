"""The limit on open files of a process."""

from __future__ import annotations

import resource

REMEDY = "raise it (ulimit -n, LimitNOFILE= of systemd, docker's --ulimit nofile=)"


def file_limit_problem(needed: int) -> str | None:
    """A sentence that says why too few files may be open; None if enough may.

    A limit that the process may raise by itself is raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    if hard != resource.RLIM_INFINITY and hard < needed:
        return f"the limit on open files is {hard}, and {needed} are needed: {REMEDY}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return None
