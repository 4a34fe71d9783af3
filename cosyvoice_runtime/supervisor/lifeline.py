"""A helper process that ends a server whose supervisor was killed."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from cosyvoice_runtime.supervisor import shared_memory

SCRIPT = """
sessions=
while read -r told; do sessions=$told; done
if [ "$sessions" != released ]; then
    for session in $sessions; do kill -s KILL -- "-$session"; done
    rm -rf -- "$1" "$2"*
fi
"""
"""Reads until the end of a pipe that the supervisor holds; each line replaces the one before."""
SPAWN = '(echo "$$" >&0); exec "$@" </dev/null'
"""Tells the helper of itself and then becomes a command: see :meth:`Lifeline.spawning`."""
RELEASE_TIMEOUT_S = 3.0
"""Longest wait for the helper's end: it may have been stopped."""


class Lifeline:
    """Nothing else notices when the supervisor gets SIGKILL: the server would go on and keep its ports, and
    so would a gateway that hangs.

    Sessions that it is told of are those of processes that began them, and so process groups, too. Threads
    may share it.

    Args:
        prefix: start of the names of the server's shared memory regions.
        run_dir: the folder of the run.
    """

    def __init__(self, prefix: str, run_dir: Path) -> None:
        self._sessions: set[int] = set()
        self._lock = threading.Lock()
        self._helper = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "lifeline", str(run_dir), str(shared_memory.DIRECTORY / prefix)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # what a helper that has ended did not take is not tried again
            start_new_session=True,
        )

    @property
    def input(self) -> IO[bytes]:
        """The pipe."""
        assert self._helper.stdin is not None
        return self._helper.stdin

    def spawning(self, command: list[str]) -> list[str]:
        """A command that is known from its first moment on, whenever the supervisor is killed.

        It needs a session of its own, of which nobody was told before, and :attr:`input` as its standard
        input: the helper reads on for as long as the process holds the pipe, which is until it has told.
        Debian's shell passes on no variables whose names are no identifiers.
        """
        return ["/bin/sh", "-c", SPAWN, "spawn", *command]

    def hold(self, session: int) -> None:
        """From now on it ends with the supervisor."""
        with self._lock:
            self._sessions.add(session)
            self._tell()

    def drop(self, session: int) -> None:
        """It has ended, and another process may get its number; harmless when repeated."""
        with self._lock:
            self._sessions.discard(session)
            self._tell()

    def release(self) -> None:
        """All was ended in an orderly way."""
        try:
            self._helper.communicate(b"released\n", RELEASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._helper.kill()  # it would stay, stopped

    def _tell(self) -> None:
        with suppress(BrokenPipeError):  # somebody has ended the helper, which is no reason to serve nobody
            self.input.write(f"{' '.join(map(str, self._sessions))}\n".encode())
