"""A front that can write to its voices alone, as in its container, takes recordings up to its limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from read_only import READ_ONLY

HERE = Path(__file__).parent
FAKES = HERE.parent / "fakes"
UPLOAD = """
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import soundfile
from front_server import running_front
from voice_uploads import AnalysingUpstream, listed, upload

try:
    tempfile.gettempdir()
    sys.exit("there is a directory for temporary files")
except FileNotFoundError:
    pass
voices = Path(sys.argv[1])
recording = BytesIO()
noise = np.random.default_rng(0).uniform(-0.5, 0.5, 24_000 * 29)
soundfile.write(recording, noise, 24_000, "PCM_16", format="WAV")
with running_front(AnalysingUpstream(voices), voices_dir=voices) as front:
    print(len(recording.getvalue()) >> 20, upload(front, recording=recording.getvalue()).status)
"""


def may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="no right to mount")
def test_recording_above_a_mib_is_taken_without_a_place_for_temporary_files(tmp_path):
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(tmp_path), sys.executable, "-c", UPLOAD]
    answer = subprocess.run(
        [*command, str(tmp_path)],
        cwd="/",
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(FAKES), str(HERE)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "1 200\n", answer.stderr
