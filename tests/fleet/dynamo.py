"""Dynamo's frontend before workers, each of which is beside a server of the fleet."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from drills.fleet import closing
from drills.ports import free_port
from drills.program import Program
from drills.speech_server import SpeechServer
from eventually import eventually

TIMEOUT_S = 30.0
LOOPBACK = {
    "DYN_TCP_RPC_HOST": "127.0.0.1",
    "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_REQUEST_PLANE": "tcp",
}
"""Without these it listens at the machine's own address, and asks for etcd."""


class DynamoProgram(Program):
    """A process that finds the others in a directory."""

    def __init__(self, name: str, folder: Path, command: Sequence[str]) -> None:
        super().__init__(name, folder / name, [sys.executable, "-m", *command])
        self._found_in = folder / "discovery"

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **LOOPBACK, "DYN_FILE_KV": str(self._found_in)}


class Worker(DynamoProgram):
    """
    Attributes:
        server: the server that it is beside.
    """

    def __init__(self, name: str, folder: Path, server: SpeechServer) -> None:
        self.server = server
        settings = [f"front.grpc_url={server.grpc_url}", "front.leave_s=1"]
        super().__init__(name, folder, ["cosyvoice_dynamo", *settings])

    def answers(self) -> bool:
        """Whether it has been started; the frontend says whether it is in Dynamo's list."""
        return self.running


class Frontend(DynamoProgram):
    """
    Attributes:
        port: of HTTP.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        options = ["--http-host", "127.0.0.1", "--http-port", str(self.port), "--router-mode", "least-loaded"]
        super().__init__("frontend", folder, ["dynamo.frontend", *options])

    def answers(self) -> bool:
        try:
            self.workers()
        except OSError:
            return False
        return True

    def workers(self) -> int:
        """Workers to which it sends requests."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=TIMEOUT_S) as page:
            return len(json.load(page)["instances"])


class Dynamo:
    """
    Attributes:
        frontend: speaks OpenAI's API.
        workers: one beside each server.
    """

    def __init__(self, folder: Path, servers: Sequence[SpeechServer]) -> None:
        self.frontend = Frontend(folder)
        self.workers = [Worker(f"worker{number}", folder, server) for number, server in enumerate(servers)]

    @contextmanager
    def running(self) -> Iterator[None]:
        with closing([self.frontend, *self.workers]):
            self.frontend.start()
            self.heal()
            yield

    def heal(self) -> None:
        """Start what has ended, and wait until every worker is asked."""
        for worker in self.workers:
            if not worker.running:
                worker.begin()
        eventually(lambda: self.frontend.workers() == len(self.workers))
