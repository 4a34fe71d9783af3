"""No library tells its makers what runs here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ASK = "import cosyvoice_runtime, os; print({name: os.environ[name] for name in %s})"
OFF = [
    "ORT_DISABLE_TELEMETRY",
    "TRTLLM_NO_USAGE_STATS",
    "VLLM_NO_USAGE_STATS",
    "HF_HUB_DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
]
SESSION = """
import cosyvoice_runtime, onnxruntime, sys
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


@pytest.mark.parametrize("before", [{}, dict.fromkeys(OFF, "0")])
def test_the_package_switches_it_off_whatever_the_environment_says(before):
    kept = {key: value for key, value in os.environ.items() if key not in OFF}
    done = subprocess.run(
        [sys.executable, "-c", ASK % OFF], env=kept | before, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(dict.fromkeys(OFF, "1"))


def test_a_session_of_onnx_runtime_leaves_nothing_in_the_home(tmp_path):
    kept = {key: value for key, value in os.environ.items() if key not in OFF and not key.startswith("XDG_")}
    model = ROOT / "demo_voice" / "speech_tokenizer_v2.onnx"
    command = [sys.executable, "-c", SESSION, str(model)]
    subprocess.run(command, env=kept | {"HOME": str(tmp_path)}, cwd=ROOT, check=True)
    assert list(tmp_path.rglob("*")) == []


def test_nothing_outside_the_package_imports_onnx_runtime_before_it():
    """Scripts and images; modules of the package import the package first by themselves, and stand-ins run in
    another product's processes."""
    files = [ROOT / "Dockerfile", *ROOT.glob("scripts/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    files = [file for file in files if file.parent.name != "standins"]
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    importing = [line for line in lines if re.search(r"\bimport\b.*\bonnxruntime\b", line)]
    assert importing
    assert [line for line in importing if not re.search("cosyvoice_runtime.*onnxruntime", line)] == []
