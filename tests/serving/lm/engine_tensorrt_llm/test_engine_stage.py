"""Stage 1 for the engines of the speech LM: what it makes, in which order, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cosyvoice_runtime.compiled.manifest import Manifest
from trtllm_fake import FakeTrtllm

SLOTS = 8


@pytest.fixture
def script(fake: FakeTrtllm, load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("build_engines")


@pytest.fixture
def settings(tiny_checkpoint: Path, tmp_path: Path) -> list[str]:
    return [
        f"checkpoint_dir={tiny_checkpoint}",
        "device=cuda",
        f"tensorrt_llm.engine_dir={tmp_path / 'speech_lm'}",
        f"tensorrt_llm.max_slots={SLOTS}",
        "tensorrt_llm.max_tokens=100",
        "tensorrt_llm.max_sequence_tokens=5000",
    ]


def test_tensorrt_llm_is_converted_checked_and_built_once(script, settings, tmp_path, monkeypatch, capsys):
    checks: list[list[str]] = []
    monkeypatch.setattr(script, "preflight", lambda arguments: checks.append(arguments) or 0)
    for _ in range(2):
        assert script.main([*settings, "tensorrt_llm.engine=tensorrt_llm"]) == 0
    assert checks == [["--checkpoint", f"{tmp_path / 'speech_lm_checkpoint'}"]]
    first, second = capsys.readouterr().out.split("token2wav: backend torch", 1)
    assert first.index("speech_lm_checkpoint: complete") < first.index("speech_lm: complete")
    assert "speech_lm_checkpoint: unchanged" in second
    assert "speech_lm: unchanged" in second
    options = Manifest.read(tmp_path / "speech_lm").options
    assert (options["max_batch_size"], options["max_seq_len"], options["dtype"]) == (SLOTS, 5000, "bfloat16")
    assert options["max_num_tokens"] >= options["max_seq_len"]


def test_failed_preflight_builds_nothing(script, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path / "fake" / "bin"))
    assert script.main([*settings, "tensorrt_llm.engine=tensorrt_llm"]) == 1
    told = capsys.readouterr()
    assert "nvidia-smi is not installed" in told.out
    assert "the preflight failed" in told.err
    assert not (tmp_path / "speech_lm").exists()


def test_vllm_gets_an_export_once(script, settings, tmp_path, capsys):
    for _ in range(2):
        assert script.main([*settings, "tensorrt_llm.engine=vllm"]) == 0
    out = capsys.readouterr().out
    assert out.count("speech_lm: complete") == out.count("speech_lm: unchanged, nothing to do") == 1
    assert Manifest.read(tmp_path / "speech_lm").options["dtype"] == "bfloat16"


def test_missing_checkpoint_is_an_error_and_leaves_nothing(script, settings, tmp_path, capsys):
    missing = [f"checkpoint_dir={tmp_path / 'none'}", *settings[1:], "tensorrt_llm.engine=tensorrt_llm"]
    assert script.main(missing) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "speech_lm_checkpoint").exists()
