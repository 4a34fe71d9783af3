"""The health check of a container: an inference, not a look at a port."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "health.py"


def check(grpc_port: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COSYVOICE_SERVER__GRPC_PORT": grpc_port}
    return subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True)


def test_server_that_speaks_is_healthy(server):
    before = server.report()["finished"]
    assert check(server.grpc_url.partition(":")[2]).returncode == 0
    assert server.report()["finished"] > before


def test_absent_server_is_not_healthy_and_a_line_says_why():
    done = check("1")
    assert done.returncode == 1
    assert done.stderr.startswith("cosyvoice2: ")
    assert done.stderr.count("\n") == 1
