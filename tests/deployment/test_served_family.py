"""What can't run the networks of a checkpoint's family is refused before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyvoice_runtime.engine.batches.load import open_router
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.lm.engines.engine import ENGINES, prepare_engine
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert
from cosyvoice_runtime.lm.engines.vllm.export import export as vllm_export
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import Machine, Settings, served_family
from cosyvoice_runtime.settings.served_family import require_served
from making import make_checkpoint

ROOT = Path(__file__).parents[2]
CPU = Machine(1, False)
GPU = Machine(1, True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family="cosyvoice3")


@pytest.fixture(scope="module")
def cosyvoice300m(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family="cosyvoice300m")


def settings_of(checkpoint: Path, *assignments: str) -> Settings:
    return Settings.read([f"checkpoint_dir={checkpoint}", "device=cpu", *assignments]).resolved(CPU)


def prepare(settings: Settings) -> object:
    return prepare_engine(settings.tensorrt_llm)


def load(settings: Settings) -> object:
    return open_router(settings.token2wav, Metrics("token2wav"))


@pytest.mark.parametrize(
    ("setting", "value", "load"),
    [
        ("tensorrt_llm.engine", "onnx", prepare),
        ("tensorrt_llm.engine", "vllm", prepare),
        ("token2wav.backend", "onnx", load),
    ],
)
def test_model_refuses_what_cannot_run_the_family(
    cosyvoice300m: Path, setting: str, value: str, load: Callable[[Settings], object]
) -> None:
    # Engines that are no torch one are for a GPU; the checkpoint is looked at before they are.
    settings = Settings.read([f"checkpoint_dir={cosyvoice300m}", f"{setting}={value}"])
    refusal = rf"{setting}: '{value}' is not accepted; torch with a checkpoint of cosyvoice300m, .*\.yaml"
    with pytest.raises(InvalidInput, match=refusal):
        load(settings)


@pytest.mark.parametrize("family", ["tiny_checkpoint", "checkpoint"])
@pytest.mark.parametrize("backend", ["torch", "onnx", "tensorrt"])
def test_every_backend_serves_what_has_blocks(
    request: pytest.FixtureRequest, family: str, backend: str
) -> None:
    directory = request.getfixturevalue(family)
    device = "cpu" if backend == "onnx" else "cuda"
    settings = [f"checkpoint_dir={directory}", f"token2wav.backend={backend}", f"token2wav.device={device}"]
    require_served(Settings.read(settings).resolved(GPU))


@pytest.mark.parametrize("script", [["render_model_repo.py", "--output", "out"], ["build_engines.py"]])
def test_stage_says_so(cosyvoice300m: Path, tmp_path: Path, script: list[str]) -> None:
    command = [sys.executable, ROOT / "scripts" / script[0], *script[1:], f"checkpoint_dir={cosyvoice300m}"]
    command += ["device=cpu", "token2wav.backend=onnx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        "token2wav.backend: 'onnx' is not accepted; torch with a checkpoint of cosyvoice300m" in done.stderr
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("export", "what"),
    [
        (vllm_export, "an export for vLLM"),
        (lambda source, out: convert(source, out, ConversionOptions()), "a checkpoint of TensorRT-LLM"),
    ],
)
def test_exports_are_refused_before_anything_is_written(
    cosyvoice300m: Path,
    tmp_path: Path,
    export: Callable[[Path, Path], object],
    what: str,
) -> None:
    with pytest.raises(CheckpointError, match=f"is of cosyvoice300m, whose .* no Qwen2; {what}.* is made of"):
        export(cosyvoice300m, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "setting",
    [
        "tensorrt_llm.engine=onnx",
        "tensorrt_llm.engine=vllm",
        "tensorrt_llm.engine=tensorrt_llm",
        "token2wav.backend=onnx",
        "token2wav.backend=tensorrt",
    ],
)
def test_cosyvoice300m_is_served_by_torch_alone(cosyvoice300m: Path, setting: str) -> None:
    settings = settings_of(cosyvoice300m)
    require_served(settings)
    assert (settings.tensorrt_llm.engine, settings.token2wav.backend) == ("torch", "torch")
    settings = Settings.read([f"checkpoint_dir={cosyvoice300m}", setting]).resolved(GPU)
    with pytest.raises(InvalidInput, match="torch with a checkpoint of cosyvoice300m"):
        require_served(settings)


@pytest.mark.parametrize(
    ("family", "says"), [("cosyvoice300m", "scripts"), ("checkpoint", "onnx or auto on")]
)
def test_what_torch_alone_could_run_says_so_where_it_is_not_installed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, family: str, says: str
) -> None:
    monkeypatch.setattr(served_family, "installed", lambda _: False)
    settings = settings_of(request.getfixturevalue(family), "tensorrt_llm.engine=torch")
    with pytest.raises(InvalidInput, match=f"engine: 'torch' is not accepted; {says}.*it is not installed"):
        require_served(settings)


def test_another_look_ahead_than_its_schedules_is_refused(cosyvoice300m: Path) -> None:
    with pytest.raises(InvalidInput, match=r"lookahead_frames: .* a schedule of their own"):
        load(settings_of(cosyvoice300m, "token2wav.lookahead_frames=8"))


@pytest.mark.parametrize("family", ["tiny_checkpoint", "checkpoint"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_serves_what_is_built_on_a_qwen2(
    request: pytest.FixtureRequest, family: str, engine: str
) -> None:
    directory = request.getfixturevalue(family)
    settings = Settings.read([f"checkpoint_dir={directory}", f"tensorrt_llm.engine={engine}"])
    require_served(settings.resolved(GPU))
