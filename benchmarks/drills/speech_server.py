"""A real server of the fleet: the supervisor's command with tritonserver, all models and both gateways."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor.preflight import SHARED_MEMORY
from cosyvoice_runtime.supervisor.process import remove_files
from drills.ports import free_port
from drills.program import Program
from measuring.server_processes import descendants, name_of

MODEL_REPO = Path(__file__).parents[2] / "model_repo"
PLACES = 4
"""Utterances at a time that each server takes."""
TIMEOUT_S = 60.0
UP = "all models answer"


class SpeechServer(Program):
    """Comes back at the same ports, with the same voices.

    Attributes:
        grpc_url: ``127.0.0.1:port``; so is ``http_url``.
    """

    def __init__(
        self, name: str, folder: Path, checkpoint: Path, variables: Mapping[str, str], *given: str
    ) -> None:
        self._variables, self._audit = variables, folder / "audit.log"
        http, grpc, metrics, self._metrics = (free_port() for _ in range(4))
        repository = folder / "repository"
        ports = {"http": http, "grpc": grpc, "metrics": metrics, "model_metrics": self._metrics}
        command = [sys.executable, "-m", "cosyvoice_runtime.supervisor", str(repository)]
        command += [f"{kind}_port={port}" for kind, port in ports.items()]
        # Probes are utterances, too, and would take places that tests count.
        command += [f"log_file={folder / 'tritonserver.log'}", "probe_interval_s=0"]
        command += [f"audit_file={self._audit}"]
        super().__init__(name, folder, command)
        self.grpc_url, self.http_url = f"127.0.0.1:{grpc}", f"127.0.0.1:{http}"
        assignments = [*settings(checkpoint, folder / "voices"), *given]
        resolved = Settings.read(assignments).resolved(Machine(cores=1, gpu=False))
        write(render(MODEL_REPO, resolved), repository)

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._variables}

    def answers(self) -> bool:
        return UP in self.told() and self.ready

    @property
    def ready(self) -> bool:
        """Whether it says that it takes requests."""
        try:
            page = f"http://{self.http_url}/v2/health/ready"
            with urllib.request.urlopen(page, timeout=TIMEOUT_S) as answer:
                return answer.status == HTTPStatus.OK
        except OSError:
            return False

    def parts(self) -> dict[str, int]:
        """Its processes' numbers by name: models, ``tritonserver``, ``supervisor``, ``gateway grpc``."""
        assert self.process is not None
        return {name_of(each): each.pid for each in descendants(self.process.pid)}

    def strike(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one of its processes."""
        os.kill(self.parts()[part], number)

    def kill(self) -> None:
        """Send SIGKILL to all its processes, with none left that removes what they had in shared memory."""
        assert self.process is not None
        super().kill()
        for run in SHARED_MEMORY.glob(f"cosyvoice-server-{self.process.pid}-*"):
            remove_files(run)

    def requests(self) -> list[str]:
        """Names of the requests in its audit log."""
        return [json.loads(line)["request_id"] for line in self._audit.read_text("utf-8").splitlines()]

    def number(self, name: str) -> float:
        """The sum of a metric over the models that show it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=TIMEOUT_S) as page:
            found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page.read().decode(), re.MULTILINE)
        return sum(map(float, found))

    @property
    def speaking(self) -> int:
        """Utterances in progress."""
        return round(self.number("cosyvoice_inflight_utterances"))


def settings(checkpoint: Path, voices: Path) -> list[str]:
    """The assignments that all servers have in common, and each one's own folder of voices."""
    return [
        f"checkpoint_dir={checkpoint}",
        f"cosyvoice2.voices_dir={voices}",
        f"cosyvoice2.max_inflight_utterances={PLACES}",
        "tensorrt_llm.engine=torch",  # text that arrives in pieces needs it
        "token2wav.backend=torch",
        "token2wav.ode_steps=2",
    ]
