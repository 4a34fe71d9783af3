"""A real tritonserver around two fake models that write coded samples; see cosyvoice2/model.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from cosyvoice_client import SAMPLE_RATE, SpeechClient, SpeechRequest
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server
from eventually import eventually

FAKE = Path(__file__).parent / "cosyvoice2"
DECOUPLED = {"cosyvoice2": "true", "cosyvoice2_offline": "false"}
TIMEOUT_S = 180.0


class FakeServer:
    """Addresses of the server and what its models have seen."""

    def __init__(self, server: Server) -> None:
        self.grpc_url = server.grpc_url
        self.http_url = server.http_url

    def report(self, model: str = "cosyvoice2") -> dict[str, Any]:
        """Counts of requests by outcome, those ``active``, and the ``inputs`` of the last one."""
        if model == "cosyvoice2":
            [chunk] = SpeechClient(self.grpc_url, timeout_s=TIMEOUT_S).speak(SpeechRequest("report"))
        else:
            from cosyvoice_client.http_client import HttpSpeechClient

            chunk = HttpSpeechClient(self.http_url).synthesize(SpeechRequest("report"))
        return json.loads(chunk.finish_reason)

    def wait_until(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        eventually(lambda: holds(self.report()))


@contextmanager
def fake_server(folder: Path, *, is_older: bool = False) -> Iterator[FakeServer]:
    """Run the fake models out of ``folder``; an older server doesn't know ``words``."""
    for model, decoupled in DECOUPLED.items():
        (folder / model / "1").mkdir(parents=True)
        (folder / model / "1" / "model.py").write_bytes((FAKE / "model.py").read_bytes())
        config = Template((FAKE / "config.pbtxt").read_text("utf-8")).substitute(decoupled=decoupled)
        if is_older:
            config = re.sub(r',\n.*"words".*', "", config)
        (folder / model / "config.pbtxt").write_text(config, "utf-8")
    settings = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder.parent / "tritonserver.log",
        probe_interval_s=0.0,
        drain_timeout_s=5.0,
    )
    with Server(folder, settings) as server:
        yield FakeServer(server)


def coded(request: int, chunks: int, samples: int = SAMPLE_RATE // 10) -> np.ndarray[Any, Any]:
    """What the fakes say for ``id=request chunks=...``, as 16-bit integers."""
    return np.repeat(request * 64 + np.arange(chunks), samples).astype(np.int16)
