"""Stage 1 for the engines of the speech LM: what it makes, in which order, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BuildOptions, build_flags
from cosyvoice_runtime.manifest import Manifest
from trtllm_fake import FakeTrtllm
from vllm_fake import install as install_vllm

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


def test_every_tensor_of_the_conversion_is_told(script, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "preflight", lambda arguments: 0)
    options = ["--only", "tensorrt_llm", "--tp-size", "2", "tensorrt_llm.engine=tensorrt_llm"]
    kind = ["tensorrt_llm.vocabulary=speech", "tensorrt_llm.weight_only=int8"]
    assert script.main([*options, *settings, *kind]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["[40/40]", "lm_head.bias"] in told
    made = Manifest.read(tmp_path / "speech_lm").options
    assert (made["layout"], made["weight_only"], made["tp_size"]) == ("speech", "int8", 2)
    options[3] = "5"
    assert script.main([*options, *settings, *kind]) == 2
    assert "tp_size: 5 is not accepted; one of 1, 2: every GPU has as many heads" in capsys.readouterr().err


def test_failed_build_names_its_status(script, settings, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(script, "preflight", lambda arguments: 0)
    monkeypatch.setenv("FAKE_BUILD_FAILS", "1")
    assert script.main([*settings, "tensorrt_llm.engine=tensorrt_llm"]) == 1
    told = capfd.readouterr().err
    assert "out of memory" in told
    assert "build_engines: trtllm-build failed with status 1" in told


def test_every_flag_is_explained_and_nothing_is_made(script, settings, tmp_path, capsys):
    assert script.main(["--explain", *settings, "tensorrt_llm.engine=tensorrt_llm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    flags = build_flags(BuildOptions(SLOTS, 5000, 5000), "merged", "bfloat16")
    assert lines == [line for flag in flags for line in (f"--{flag.name} {flag.value}", f"    {flag.why}")]
    assert not list(tmp_path.glob("speech_lm*"))


def test_failed_preflight_builds_nothing(script, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path / "fake" / "bin"))
    assert script.main([*settings, "tensorrt_llm.engine=tensorrt_llm"]) == 1
    told = capsys.readouterr()
    assert "nvidia-smi is not installed" in told.out
    assert "the preflight failed" in told.err
    assert not (tmp_path / "speech_lm").exists()


def test_vllm_gets_an_export_once(script, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    for _ in range(2):
        assert script.main([*settings, "tensorrt_llm.engine=vllm"]) == 0
    out = capsys.readouterr().out
    assert out.count("speech_lm: complete") == out.count("speech_lm: unchanged, nothing to do") == 1
    assert Manifest.read(tmp_path / "speech_lm").options["dtype"] == "bfloat16"


def test_where_vllm_is_its_preflight_has_to_pass(script, settings, monkeypatch, capsys):
    install_vllm(monkeypatch)
    checks: list[list[str]] = []
    monkeypatch.setattr(script, "preflight", lambda arguments: checks.append(arguments) or 1)
    assert script.main([*settings, "tensorrt_llm.engine=vllm"]) == 1
    assert checks == [["--engine", "vllm"]]
    assert "the preflight failed" in capsys.readouterr().err


def test_missing_checkpoint_is_an_error_and_leaves_nothing(script, settings, tmp_path, capsys):
    missing = [f"checkpoint_dir={tmp_path / 'none'}", *settings[1:], "tensorrt_llm.engine=tensorrt_llm"]
    assert script.main(missing) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "speech_lm_checkpoint").exists()
