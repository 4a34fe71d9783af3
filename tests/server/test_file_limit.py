"""Where too few files may be open, a line says what to raise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPERVISOR = (
    "-m cosyvoice_runtime.supervisor tests/server/model_repo server.http_port=0 server.grpc_port=0 "
    + ("server.metrics_port=0 server.model_metrics_port=0 server.log_file=/dev/null")
)
ASK = "from cosyvoice_runtime.process.file_limit import file_limit_problem as ask; print(ask(512)); " + (
    "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
)


def limited(limit: str, arguments: str) -> subprocess.CompletedProcess[str]:
    line = f'ulimit {limit} && exec "{sys.executable}" {arguments}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "needed", "status"), [(SUPERVISOR, 512, 3), ("-m cosyvoice_front front.port=0", 256, 2)]
)
@pytest.mark.parametrize("limit", [64, 128])
def test_too_low_a_limit_is_told_and_nothing_starts(arguments, needed, status, limit):
    done = limited(f"-n {limit}", arguments)
    assert done.returncode == status
    (line,) = [line for line in done.stderr.splitlines() if "open files" in line]
    assert f"the limit on open files is {limit}, and {needed} are needed: raise it (ulimit -n," in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("limit", "then"), [("-S -n 64", 512), ("-S -n 600", 600), ("-n 512", 512)])
def test_a_limit_that_may_be_raised_is_raised_and_no_more(limit, then):
    done = limited(limit, f'-c "{ASK}"')
    assert done.stdout.split() == ["None", str(then)], done.stderr
