"""``scripts/demo.py`` speaks an English sentence with the checkpoint and the recording that come along."""

from __future__ import annotations

import subprocess
import sys
import wave
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

ROOT = Path(__file__).parents[2]
SECONDS = (2.4, 5.0)
"""The synthesizer whose voice it is takes 3.3 s."""


def test_the_demo_speaks_and_stops(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/demo.py", "--output", str(tmp_path / "demo.wav")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "known voice: first audio after" in done.stdout
    with wave.open(str(tmp_path / "demo.wav")) as sound:
        seconds = sound.getnframes() / sound.getframerate()
    assert SECONDS[0] < seconds < SECONDS[1]
