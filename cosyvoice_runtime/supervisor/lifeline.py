"""A helper process that ends the server's run when the supervisor is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cosyvoice_runtime.supervisor import shared_memory

RUN_VARIABLE = "SUPERVISOR_RUN"
"""The environment variable with the run's folder, which each process of the run has."""
SCRIPT = """
while read -r told; do [ "$told" != released ] || exit 0; done
while pids=$(grep -lsF -- "$1" /proc/[0-9]*/environ | cut -d / -f 3) && [ -n "$pids" ]; do
    kill -s KILL -- $pids
    sleep 0.05
done
rm -rf -- "$1" "$2"*
"""
"""The helper reads until the end of a pipe whose other end only the supervisor holds."""
RELEASE_TIMEOUT_S = 3.0
"""The longest wait for the helper's end, because a signal may have stopped it."""


class Lifeline:
    """Kills all processes of a run and removes its files when the supervisor gets SIGKILL.

    Args:
        run_dir: the folder of the run.
    """

    def __init__(self, run_dir: Path) -> None:
        regions = shared_memory.DIRECTORY / shared_memory.region_prefix(run_dir)
        self._helper = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "lifeline", str(run_dir), str(regions)],
            stdin=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the helper without effect, because the run ended in an orderly way."""
        try:
            self._helper.communicate("released\n", RELEASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._helper.kill()
            self._helper.wait()
