"""``python -m cosyvoice_front`` as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from cosyvoice_front.command import uvicorn_config
from cosyvoice_runtime.settings import Settings
from eventually import eventually

TIMEOUT_S = 120.0


def command(*settings):
    return [sys.executable, "-m", "cosyvoice_front", *settings]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["front.host=0.0.0.0"], r"front\.host: '0\.0\.0\.0'.*api_keys_file"),
        (["front.api_keys_file=/nowhere"], r"front\.api_keys_file: '/nowhere'"),
        (["front.prot=1"], "did you mean port"),
        (["front.limits_url=redis://nowhere.invalid"], r"front\.limits_url: 'redis://nowhere\.invalid'"),
        (["front.grpc_url=nowhere.invalid:8001"], r"front\.grpc_url: 'nowhere\.invalid:8001'.*known here"),
        (["front.grpc_url=nowhere.invalid:1,127.0.0.1:2"], r"front\.grpc_url: .*nowhere\.invalid:1.*known"),
        (["front.metrics_port=8080"], r"front\.metrics_port: 8080.*another one than front\.port"),
        (["front.aliases=alloy"], r"front\.aliases: 'alloy'"),
    ],
)
def test_wrong_settings_are_named(settings, says):
    done = subprocess.run(command(*settings), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert re.search(says, done.stderr)


def test_name_behind_dns_that_has_no_address_yet_is_warned_of():
    with started("front.leave_s=0", "front.grpc_url=dns:///nowhere.invalid:8001") as front:
        warned = front.stderr.readline()
        url = url_of(front)
        assert get(f"{url}/health")[0] == 200
        assert get(f"{url}/health/ready")[0] == 503
        front.terminate()
    assert "WARNING" in warned
    assert "nowhere.invalid:8001: a name that is known here is expected" in warned


def test_missing_package_is_named_with_what_installs_it(tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command(), capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    assert done.returncode == 2
    assert "the module uvicorn is not installed: python3 scripts/environment.py --front" in done.stderr
    assert "Traceback" not in done.stderr


def test_port_is_that_of_the_settings():
    assert uvicorn_config(Settings.read(["front.port=8123"])).port == 8123


def started(*settings):
    return subprocess.Popen(command("front.port=0", *settings), stderr=subprocess.PIPE, text=True)


def url_of(front):
    return next(found[0] for line in front.stderr if (found := re.search(r"(?<=running on )\S+", line)))


def get(url):
    """Status and text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(("signal_", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
def test_front_serves_until_it_is_told_to_stop(signal_, status):
    with started("front.leave_s=0") as front:
        url = url_of(front)
        request = urllib.request.Request(f"{url}/v1/", headers={"x-request-id": "in-the-log"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/x%0Aforged%1b[2J%E2%80%A8%E5%B0%8F", timeout=TIMEOUT_S)
        front.send_signal(signal_)
        told = front.stderr.read()
    assert "[in-the-log] GET /v1/ 200" in told
    assert r"GET /x\nforged\x1b[2J\u2028\u5c0f 404" in told.replace("小", r"\u5c0f")
    assert "Traceback" not in told
    assert front.returncode == status


@pytest.mark.parametrize("last", [signal.SIGTERM, signal.SIGINT])
def test_front_that_is_told_to_stop_is_unready_at_once_and_serves_until_it_has_left(last):
    with started("front.leave_s=3600") as front:
        url = url_of(front)
        assert "being stopped" not in get(f"{url}/health/ready")[1]
        front.send_signal(signal.SIGTERM)
        eventually(lambda: "being stopped" in get(f"{url}/health/ready")[1])
        assert get(f"{url}/health/ready")[0] == 503
        assert [get(url + path)[0] for path in ("/health", "/v1/models", "/")] == [200, 200, 200]
        front.send_signal(last)  # it doesn't wait for another hour
        assert "Traceback" not in front.stderr.read()
    assert front.returncode in (-signal.SIGTERM, 0)


def test_front_leaves_by_itself():
    with started("front.leave_s=1") as front:
        url_of(front)
        front.send_signal(signal.SIGTERM)
        assert "Traceback" not in front.stderr.read()
    assert front.returncode == -signal.SIGTERM


def test_taken_port_of_metrics_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            command("front.port=0", f"front.metrics_port={port}"),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 2
    assert f"front.metrics_port: {port} is not accepted; a free one is needed" in done.stderr
