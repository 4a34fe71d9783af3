"""What the container runs, without the container: the same command in the same environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker_image
import pytest
from docker_image import ROOT

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

START_TIMEOUT_S = 1200.0
STOP_TIMEOUT_S = 300.0
POLL_S = 0.1
UP = "all models answer"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The image's, with places and ports of this test."""
    free = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
    ports = ServerPorts.choose(free)
    return docker_image.environment() | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SOURCE": "made",
        "CHECKPOINT": str(tmp_path / "checkpoints" / "made"),
        "MODEL_REPO": str(tmp_path / "build"),
        "COSYVOICE_SETTINGS": "deploy/cpu.toml",
        "COSYVOICE_VOICES_DIR": str(tmp_path / "voices"),
        "COSYVOICE_SERVER__LOG_FILE": str(tmp_path / "tritonserver.log"),
        "COSYVOICE_SERVER__HTTP_PORT": str(ports.http),
        "COSYVOICE_SERVER__GRPC_PORT": str(ports.grpc),
        "COSYVOICE_SERVER__METRICS_PORT": str(ports.metrics),
        "COSYVOICE_SERVER__MODEL_METRICS_PORT": str(ports.model_metrics),
        "OMP_NUM_THREADS": "1",
    }


def health(environment: dict[str, str]) -> int:
    """Exit status of the image's health check."""
    kind, *command = docker_image.final("HEALTHCHECK").values
    assert kind == "CMD"
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode


def test_command_of_the_container_makes_everything_speaks_and_stops(environment, tmp_path):
    command = docker_image.final("CMD").values
    assert health(environment) == 1
    with (tmp_path / "output").open("wb") as output:
        container = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while UP not in (told := (tmp_path / "output").read_text()):
            assert container.poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(POLL_S)
        assert health(environment) == 0
        container.send_signal(signal.SIGTERM)
        assert container.wait(STOP_TIMEOUT_S) == 0
    finally:
        container.kill()
        container.wait()
    told = (tmp_path / "output").read_text()
    for stage in ("checkpoint", "engines", "model repository", "server"):
        assert f"== {stage}" in told
    assert "every request answered" in told
    assert ".venv: " not in told, "the image's own environment, none is made"
