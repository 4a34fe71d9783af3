"""``scripts/demo.py`` speaks English with the checkpoint and the recording that come along, and serves it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
import wave
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")
pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")

from cosyvoice_runtime import processes

ROOT = Path(__file__).parents[2]
SECONDS = (2.4, 5.0)
"""The synthesizer whose voice it is takes 3.3 s."""
TIMEOUT_S = 300.0
LAST_LINE = "Ctrl-C ends it"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def speech(url: str, text: str) -> bytes:
    body = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/audio/speech", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return answer.read()


def test_the_demo_speaks_serves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/demo.py", "--output", str(tmp_path / "demo.wav"), "--serve"]
    environment = os.environ | {"COSYVOICE_FRONT__PORT": str(free_port())}
    with (
        (tmp_path / "log").open("w+") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as demo,
    ):
        told = ""
        while LAST_LINE not in told:
            line = demo.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            told += line
        [url] = re.findall(r"page to speak from: (\S+)/\n", told)
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:
            assert b"<html" in page.read()
        assert len(speech(url, "Good morning.")) > 24_000
        sessions = {each.session for each in processes.living() if each.parent == demo.pid}
        os.killpg(demo.pid, signal.SIGINT)  # as Ctrl-C does
        assert demo.wait(TIMEOUT_S) == 0
    assert len(sessions) > 1, "its own, and those of what it started"
    assert not [each for session in sessions for each in processes.session_members(session)]
    log = (tmp_path / "log").read_text()
    assert "server stopped, every request answered" in log
    assert "Traceback" not in log
    assert "known voice: first audio after" in told
    with wave.open(str(tmp_path / "demo.wav")) as sound:
        seconds = sound.getnframes() / sound.getframerate()
    assert SECONDS[0] < seconds < SECONDS[1]
