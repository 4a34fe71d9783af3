"""``--help`` of every command says how it is used and does nothing else."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(
    path
    for folder in ("scripts", "client", "benchmarks")
    for path in (ROOT / folder).glob("*.py")
    if "__main__" in path.read_text("utf-8")
)
ON_A_GPU = {"fused_kernels.py", "fused_step.py", "compile_kernels.py", "tune_kernels.py"}
MODULES = ("cosyvoice_runtime", "cosyvoice_runtime.checkpoint", "cosyvoice_runtime.supervisor")
WITHOUT_PACKAGES = (
    "import os, runpy, sys\n"
    "sys.modules.update(dict.fromkeys(('scipy', 'pocketsphinx', 'matplotlib', 'datasets')))\n"
    "sys.argv.pop(0), sys.path.insert(0, os.path.dirname(sys.argv[0]))\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs a script where the packages are missing that only measuring needs."""


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_help_of_a_script(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if path.name in ON_A_GPU:
        pytest.importorskip("triton", reason="needs a GPU's packages")
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    monkeypatch.syspath_prepend(path.parent)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    assert_is_help(*capsys.readouterr())


@pytest.mark.parametrize("module", MODULES)
def test_help_of_a_module(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.delitem(sys.modules, f"{module}.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"{module}.__main__", run_name="__main__")
    assert ended.value.code == 0
    assert_is_help(*capsys.readouterr())


def test_help_of_the_demo_voice_s_benchmark_needs_no_package_of_its_own() -> None:
    command = [sys.executable, "-c", WITHOUT_PACKAGES, "benchmarks/demo_speech.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_is_help(done.stdout, done.stderr)


def assert_is_help(output: str, errors: str) -> None:
    assert output.startswith("usage: ")
    assert errors == ""
