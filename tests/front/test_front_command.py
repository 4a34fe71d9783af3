"""``python -m cosyvoice_front`` as a process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from cosyvoice_front.__main__ import uvicorn_config
from cosyvoice_runtime.settings import Settings

TIMEOUT_S = 120.0


def command(*settings):
    return [sys.executable, "-m", "cosyvoice_front", *settings]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["front.host=0.0.0.0"], r"front\.host: '0\.0\.0\.0'.*api_keys_file"),
        (["front.api_keys_file=/nowhere"], r"front\.api_keys_file: '/nowhere'"),
        (["front.prot=1"], "did you mean port"),
        (["front.aliases=alloy"], r"front\.aliases: 'alloy'"),
    ],
)
def test_wrong_settings_are_named(settings, says):
    done = subprocess.run(command(*settings), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert re.search(says, done.stderr)


def test_port_is_that_of_the_settings():
    assert uvicorn_config(Settings.read(["front.port=8123"])).port == 8123


@pytest.mark.parametrize(("signal_", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
def test_front_serves_until_it_is_told_to_stop(signal_, status):
    with subprocess.Popen(command("front.port=0"), stderr=subprocess.PIPE, text=True) as front:
        url = next(found[0] for line in front.stderr if (found := re.search(r"(?<=running on )\S+", line)))
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
