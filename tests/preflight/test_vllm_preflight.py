"""The preflight of NVIDIA's container with vLLM, on a stand-in with the release's signatures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cosyvoice_runtime.lm.engines.vllm import engine
from cosyvoice_runtime.preflight import checks
from cosyvoice_runtime.preflight.__main__ import main
from cosyvoice_runtime.preflight.vllm import USED
from cosyvoice_runtime.settings import Machine, Settings
from vllm_fake import RELEASES, install


@pytest.fixture(params=RELEASES)
def release(request) -> str:
    return request.param


@pytest.fixture
def report(release, monkeypatch, tmp_path: Path, capsys) -> Callable[[str], tuple[int, dict[str, str]]]:
    """``report(driver)`` gives the exit status, and what did not pass by what was looked at."""
    install(monkeypatch, release)
    monkeypatch.setattr(checks, "sys", SimpleNamespace(version_info=(3, 12, 3)))
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: (13, 1))

    def run(version: str = "615.61.02") -> tuple[int, dict[str, str]]:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho 'NVIDIA H100, {version}, 81559 MiB'\n")
        program.chmod(0o755)
        monkeypatch.setattr(checks, "QUERY", [str(program)])
        status = main(["--engine", "vllm"])
        lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:-1]]
        words = [(verdict, *rest.split("  ", 1)) for verdict, rest in lines if verdict != "pass"]
        return status, {name: f"{verdict} {text.strip()}" for verdict, name, text in words}

    return run


def test_pinned_container_passes(report):
    assert report() == (0, {})


@pytest.mark.parametrize("version", ["580.95.05", "590.44.01"])
def test_driver_of_the_same_cuda_is_a_warning(report, release, version):
    status, wrong = report(version)
    assert (status, list(wrong)) == (0, ["driver"])
    image, driver = {"0.24.0": ("26.07", "610.43"), "0.27.1": ("26.08", "615.61")}[release]
    assert wrong["driver"].startswith(
        f"warning {version} supports CUDA 13.1, nvcr.io/nvidia/tritonserver:{image}-vllm"
    )
    assert wrong["driver"].endswith(f"{driver} has all of it")


def test_driver_of_an_older_cuda_fails(report, monkeypatch):
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: (12, 8))
    status, wrong = report("570.133.20")
    assert (status, list(wrong)) == (1, ["driver"])
    assert "update it to 580 or newer" in wrong["driver"]


def test_another_release_fails(report, monkeypatch):
    monkeypatch.setattr(sys.modules["vllm"], "__version__", "0.33.0+nv26.11")
    status, wrong = report()
    assert status == 1
    assert wrong["vllm"].startswith("FAIL 0.33.0, but written for 0.24.0 (nvcr.io/nvidia/tritonserver:26.07")


def test_symbol_that_is_gone_fails(report, monkeypatch):
    monkeypatch.delattr(sys.modules["vllm.inputs.engine"], "embeds_input")
    assert report() == (1, {"vllm.inputs.engine.embeds_input": "FAIL does not exist"})


def test_every_argument_of_the_engine_is_looked_for(tiny_checkpoint):
    settings = Settings.read(["device=cuda", f"checkpoint_dir={tiny_checkpoint}"]).resolved(Machine(4, True))
    config = engine.load_config(tiny_checkpoint).speech_lm
    passed = engine.engine_args(settings.tensorrt_llm, config, 2**36)
    [listed] = [symbol.parameters for symbol in USED if symbol.name == "EngineArgs"]
    assert set(listed.split()) == passed.keys()
