"""A server that a benchmark starts for itself, with the code of a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.machine import ROOT

if TYPE_CHECKING:
    from typing import Self

UP = "all models answer"
QUIET = ("http_port=0", "grpc_port=0", "metrics_port=0", "model_metrics_port=0", "server.probe_interval_s=0")
"""Ports that are free, and no probes of servers that wait for their turn."""
START_TIMEOUT_S = 300.0
LOOK_S = 0.02


def environment(checkout: Path) -> dict[str, str]:
    """Variables with which Python, in models' processes too, imports from a checkout."""
    given = os.environ.get("PYTHONPATH")
    paths = [str(checkout), str(checkout / "client"), *([given] if given else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class OwnServer:
    """A running server, in a context that ends it.

    Args:
        repository: rendered.
        folder: where logs are written.
        checkout: whose code runs.

    Attributes:
        start_s: until all models answer.
        process: the supervisor's.
    """

    def __init__(self, repository: Path, folder: Path, checkout: Path = ROOT) -> None:
        self._checkout = checkout
        self._command = [sys.executable, "-m", "cosyvoice_runtime.supervisor", str(repository), *QUIET]
        self._command += [f"log_file={folder / 'tritonserver.log'}"]
        self._said = folder / "supervisor.log"

    def __enter__(self) -> Self:
        started = time.monotonic()
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                self._command,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self._checkout,
                env=environment(self._checkout),
            )
        while UP not in self._said.read_text():
            if self.process.poll() is not None or time.monotonic() - started > START_TIMEOUT_S:
                self.__exit__()
                raise RuntimeError(f"the server does not start: {self._said.read_text()}")
            time.sleep(LOOK_S)
        self.start_s = time.monotonic() - started
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def url(self) -> str:
        """Where it answers gRPC."""
        return re.findall(r"gRPC (\S+),", self._said.read_text())[-1]
