"""A helper process that ends a server whose supervisor was killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cosyvoice_runtime.supervisor import shared_memory

SCRIPT = 'read -r _ || { kill -s KILL -- "-$1"; rm -rf -- "$2" "$3"*; }'
"""Waits for a line, or for the end of the pipe that only the supervisor holds."""
RELEASE_TIMEOUT_S = 3.0
"""Longest wait for the helper's end: it may have been stopped."""


class Lifeline:
    """Nothing else notices when the supervisor gets SIGKILL: the server would go on and keep its ports.

    Args:
        session: id of the server's session, which is its process group, too.
        prefix: start of the names of its shared memory regions.
        run_dir: its temporary folder.
    """

    def __init__(self, session: int, prefix: str, run_dir: Path) -> None:
        regions = str(shared_memory.DIRECTORY / prefix)
        self._helper = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "lifeline", str(session), str(run_dir), regions],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """The server was ended in an orderly way."""
        try:
            self._helper.communicate(b"released\n", RELEASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._helper.kill()  # before it can take the end of its input for that of the supervisor
