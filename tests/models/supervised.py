"""The supervisor's command around all models, with the tiny checkpoint: what dies is brought back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cosyvoice_client import ClientError, SpeechClient, SpeechRequest
from cosyvoice_runtime.process import processes

if TYPE_CHECKING:
    from typing import Self

START_S = 600.0
PATIENCE_S = 300.0
LOOK_S = 0.05
FREE_PORTS = ("http_port=0", "grpc_port=0", "metrics_port=0", "model_metrics_port=0")


class Supervised:
    """Runs the command in a context; leaving it stops the server with SIGTERM."""

    def __init__(self, repository: Path, *settings: str) -> None:
        self.output = repository.with_name("supervisor.log")
        self.log = repository.with_name("tritonserver.log")
        self._command = [sys.executable, "-m", "cosyvoice_runtime.supervisor", str(repository)]
        self._command += [*FREE_PORTS, f"log_file={self.log}", *settings]

    def __enter__(self) -> Self:
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
        started = time.monotonic()
        self.wait_for(lambda: self.said("all models answer"), START_S)
        self.start_s = time.monotonic() - started
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(START_S)

    @property
    def grpc_url(self) -> str:
        return re.findall(r"gRPC (\S+),", self.output.read_text())[-1]

    @property
    def metrics_url(self) -> str:
        return re.findall(r"metrics (\S+)$", self.output.read_text(), re.MULTILINE)[-1]

    def said(self, text: str) -> int:
        """How often the supervisor has said this."""
        return self.output.read_text().count(text)

    def server_pid(self) -> int:
        return next(
            each.pid
            for each in processes.living()
            if Path(each.command[0]).name == "tritonserver" and each.parent == self.process.pid
        )

    def signal(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process of a model, or to tritonserver."""
        members = processes.session_members(self.server_pid())
        pids = [each.pid for each in members if each.model == name]
        os.kill(self.server_pid() if name == "tritonserver" else pids[0], number)

    def wait_for(self, holds, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(LOOK_S)

    def spoken(self, request: SpeechRequest) -> np.ndarray:
        chunks = SpeechClient(self.grpc_url, timeout_s=PATIENCE_S).speak(request)
        return np.concatenate([chunk.samples for chunk in chunks])

    def spoken_within(self, request: SpeechRequest, seconds: float) -> np.ndarray:
        """The audio as soon as the server speaks again, which it must before this time is over."""
        heard: list[np.ndarray] = []

        def speaks() -> bool:
            with suppress(ClientError):
                heard.append(self.spoken(request))
            return bool(heard)

        self.wait_for(speaks, seconds)
        return heard[0]
