"""A GPU that torch can't use, from the first stage to the models: never a CPU's server without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu import nvidia
from cosyvoice_runtime.gpu.nvidia import Obstacle
from cosyvoice_runtime.local.cli import main
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings, Token2WavSettings, machine
from nvidia_fake import fake_driver, fake_torch

ROOT = Path(__file__).resolve().parents[2]
OLD_DRIVER = "NVIDIA's driver 570.133.20 supports CUDA 12.8, torch 2.13.0 needs CUDA 13.0: install driver 580"
NO_GPU = f"the CPU computes, not the GPU: {OLD_DRIVER}"
OBSTACLE = Obstacle(OLD_DRIVER)
Stage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Runs a stage's script on a machine with a driver of CUDA 12.8 and a torch for 13.0."""
    python_path = fake_torch(tmp_path / "torch")
    variables = fake_driver(tmp_path / "driver", (12, 8)) | {"PYTHONPATH": f"{python_path}:{ROOT}"}

    def run(*command: object, **more: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | variables | more
        return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)

    return run


def scripts(folder: Path) -> dict[str, list[object]]:
    return {
        "1": [ROOT / "scripts" / "build_engines.py", "--only", "audio_tokenizer"],
        "2": [ROOT / "scripts" / "render_model_repo.py", "--output", folder / "repository"],
    }


@pytest.mark.parametrize("number", ["1", "2"])
def test_stage_warns_and_refuses_a_gpu_asked_for_by_name(stage, tmp_path, number):
    command = [*scripts(tmp_path)[number], f"checkpoint_dir={ROOT / 'demo_voice'}"]
    auto = stage(*command)
    assert (auto.returncode, auto.stderr.count(NO_GPU)) == (0, 1)
    named = stage(*command, COSYVOICE_DEVICE="cuda:0")
    assert named.returncode == 2
    assert f"'cuda:0' is not accepted; no GPU can be used: {OLD_DRIVER}" in named.stderr
    cpu = stage(*command, "device=cpu")
    assert (cpu.returncode, OLD_DRIVER in cpu.stderr) == (0, False)


def test_no_torch_is_a_choice_that_is_told(stage, tmp_path):
    without = "import sys; sys.modules['torch'] = None; from cosyvoice_runtime.settings import Machine"
    answer = stage("-c", f"{without}; print(Machine.here().obstacle)")
    assert "torch is not installed" in answer.stdout, answer.stderr
    assert "chosen=True" in answer.stdout


@pytest.mark.parametrize(
    ("texts", "field"),
    [
        (["device=cuda"], "tensorrt_llm.device"),
        (["device=cuda:1"], "tensorrt_llm.device"),
        (["token2wav.device=cuda"], "token2wav.device"),
        (["token2wav.backend=torch", "token2wav.device=cuda"], "token2wav.device"),
        (["tensorrt_llm.engine=torch", "tensorrt_llm.device=cuda"], "tensorrt_llm.device"),
        (["engine=tensorrt_llm"], "tensorrt_llm.engine"),
        (["engine=vllm"], "tensorrt_llm.engine"),
        (["token2wav.backend=tensorrt"], "token2wav.backend"),
        (["audio_tokenizer.backend=tensorrt"], "audio_tokenizer.backend"),
        (["tensorrt_llm.kernels=fused"], "tensorrt_llm.kernels"),
    ],
    ids=str,
)
def test_setting_that_needs_a_gpu_is_refused_with_the_reason(texts, field):
    settings = Settings.read(texts)
    with pytest.raises(InvalidInput) as refused:
        settings.resolved(Machine(4, gpu=False, obstacle=OBSTACLE))
    assert refused.value.field == field
    assert OLD_DRIVER in str(refused.value)
    assert settings.resolved(Machine(4, gpu=True))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], True),
        (["tensorrt_llm.device=cpu"], True),
        (["tensorrt_llm.engine=torch", "token2wav.device=cpu"], True),
        (["device=cpu"], False),
        (["tensorrt_llm.device=cpu", "token2wav.device=cpu,cpu"], False),
        (["tensorrt_llm.engine=onnx", "token2wav.backend=onnx"], False),
    ],
    ids=str,
)
def test_cpu_that_settings_name_needs_no_warning(texts, told, caplog):
    settings, machine = Settings.read(texts), Machine(4, gpu=False, obstacle=OBSTACLE)
    settings.tell_choices(settings.resolved(machine), machine)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * told


@pytest.mark.parametrize("section", [TensorrtLlmSettings, Token2WavSettings])
def test_model_says_at_its_start_what_has_changed_since_stage_2(section, monkeypatch, caplog):
    monkeypatch.setattr(machine, "obstacle", lambda: OBSTACLE)
    with pytest.raises(InvalidInput, match=r"'cuda:0' .*supports CUDA 12\.8"):
        machine.check_at_start(section(device="cuda:0"))
    machine.check_at_start(section(device="cpu"))
    assert caplog.messages == [NO_GPU]


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can use this machine's GPU")
def test_command_line_refuses_a_gpu_with_the_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(nvidia, "obstacle_to_torch", lambda: OBSTACLE)
    command = [
        "speak",
        "Hello.",
        "--checkpoint",
        str(ROOT / "demo_voice"),
        "--device",
        "cuda",
        "-o",
        str(tmp_path / "x.wav"),
    ]
    assert main(command) == 1
    assert f"expected one that torch can use: {OLD_DRIVER}" in capsys.readouterr().err
