"""The stand-in for TensorRT-LLM, and small checkpoints converted for it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.lm.torch.network import SpeechLM
from trtllm_fake import FakeTrtllm, install

SCRIPTS = Path(__file__).parents[4] / "scripts"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTrtllm:
    return install(monkeypatch, tmp_path / "fake")


@pytest.fixture
def load_script() -> Callable[[str], ModuleType]:
    """``load_script(name)`` gives a script of scripts/ as a module."""

    def load(name: str) -> ModuleType:
        spec = spec_from_file_location(name, SCRIPTS / f"{name}.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def lm(tiny_checkpoint: Path) -> SpeechLM:
    config = load_config(tiny_checkpoint)
    return SpeechLM.from_tensors(config.speech_lm, load_tensors(Layout(tiny_checkpoint), "llm", config))
