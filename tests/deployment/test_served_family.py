"""A checkpoint that the server can't speak with is refused before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint import make_checkpoint
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.lm.engine import prepare_engine
from cosyvoice_runtime.serving.served_family import require_served
from cosyvoice_runtime.serving.token2wav.load import load_wave_service
from cosyvoice_runtime.settings import Machine, Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family="cosyvoice3")


@pytest.mark.parametrize(
    "load",
    [
        lambda settings: prepare_engine(settings.tensorrt_llm),
        lambda settings: load_wave_service(settings.token2wav, Metrics("token2wav")),
    ],
    ids=["tensorrt_llm", "token2wav"],
)
def test_model_does_not_load_a_family_that_it_would_speak_wrongly(
    checkpoint: Path, load: Callable[[Settings], object]
) -> None:
    settings = Settings.read([f"checkpoint_dir={checkpoint}", "device=cpu"]).resolved(Machine(1, False))
    with pytest.raises(CheckpointError, match=r"cosyvoice3\.yaml: the server speaks with .* cosyvoice2"):
        load(settings)


@pytest.mark.parametrize("script", [["render_model_repo.py", "--output", "out"], ["build_engines.py"]])
def test_stage_says_so(checkpoint: Path, tmp_path: Path, script: list[str]) -> None:
    command = [sys.executable, ROOT / "scripts" / script[0], *script[1:], f"checkpoint_dir={checkpoint}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cosyvoice3.yaml: the server speaks with checkpoints of cosyvoice2" in done.stderr
    assert not (tmp_path / "out").exists()


def test_checkpoint_of_cosyvoice2_is_served(tiny_checkpoint: Path) -> None:
    require_served(tiny_checkpoint)
