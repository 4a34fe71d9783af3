from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from cosyvoice_runtime.tensorrt import engine_files, graph_files

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


ON_TORCH = ["tensorrt_llm.engine=torch", "token2wav.backend=torch"]


def load(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script, SCRIPTS / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main_of(script: str) -> Callable[[list[str]], int]:
    return load(script).main


def test_nothing_is_built_for_backends_that_need_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of("build_engines")(["checkpoint_dir=none", *ON_TORCH]) == 0
    assert capsys.readouterr().out.count("nothing to do") == 4


def test_graphs_are_made_once_for_backend_onnx(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"checkpoint_dir={tiny_checkpoint}", f"backend_dir={tmp_path}", "device=cpu", "engine=torch"]
    make = main_of("build_engines")
    assert make([*settings, "token2wav.backend=onnx"]) == 0
    assert capsys.readouterr().out.count(": complete") == 1
    assert make([*settings, "token2wav.backend=onnx"]) == 0
    assert capsys.readouterr().out.count(": unchanged, nothing to do") == 1
    graphs = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.onnx"))
    names = "flow_encoder", "flow_estimator", "flow_times", "hift_decoder", "hift_f0"
    assert graphs == [f"onnx_cpu/{name}_cpu.onnx" for name in names]


def test_speech_lm_for_engine_onnx_is_written_once(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"checkpoint_dir={tiny_checkpoint}", f"tensorrt_llm.engine_dir={tmp_path / 'lm'}"]
    make = main_of("build_engines")
    for told in ("complete", "unchanged, nothing to do"):
        assert make(["--only", "tensorrt_llm", "device=cpu", "engine=onnx", *settings]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path / 'lm'}: {told}"


def test_only_the_named_models_are_made(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [
        f"checkpoint_dir={tiny_checkpoint}",
        f"backend_dir={tmp_path}",
        "engine=torch",
        "token2wav.backend=onnx",
    ]
    only = ["--only", "audio_tokenizer", "--only", "tensorrt_llm"]
    assert main_of("build_engines")([*only, "device=cpu", *settings]) == 0
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["audio_tokenizer", "tensorrt_llm"]
    assert not list(tmp_path.rglob("*.onnx"))


def test_missing_checkpoint_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"checkpoint_dir={tmp_path / 'none'}", "device=cpu", "token2wav.backend=onnx"]
    assert main_of("build_engines")(settings) == 1
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["token2wav", "audio_tokenizer", "speaker_embedding"])
def test_engines_without_tensorrt_are_an_error(
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    settings = [f"checkpoint_dir={tiny_checkpoint}", f"backend_dir={tmp_path}", "device=cuda"]
    assert main_of("build_engines")([*settings, f"{model}.backend=tensorrt"]) == 1
    assert "needs the module tensorrt" in capsys.readouterr().err


def test_engines_are_built_on_the_gpu_of_the_settings(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, devices = load("build_engines"), []
    monkeypatch.setattr(graph_files, "export_graph", lambda *arguments: [])
    monkeypatch.setattr(
        engine_files, "build", lambda directory, name, profiles, cuda: devices.append(cuda.device) or []
    )
    settings = ["device=cuda:1", "token2wav.backend=tensorrt"]
    assert script.main([f"checkpoint_dir={tiny_checkpoint}", *settings]) == 0
    assert devices == [torch.device("cuda:1")] * 3
