"""A speech LM of unusual sizes with random weights, on PyTorch and on ONNX Runtime."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig, SpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import llm_schema
from cosyvoice_runtime.lm.onnx.export import FloatArrays, Heads, write_lm
from cosyvoice_runtime.lm.onnx.files import LmFiles
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxSpeechLM
from cosyvoice_runtime.lm.torch.network import SpeechLM

CONFIG = SpeechLMConfig(
    hidden_size=96,
    intermediate_size=56,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    text_vocab_size=90,
    speech_tokens=70,
    rope_theta=1e4,
    rms_norm_eps=1e-6,
    max_positions=512,
    mix_ratio=(5, 15),
)
CONFIGS = {"cosyvoice2": CONFIG, "cosyvoice3": OneTableSpeechLMConfig(**asdict(CONFIG))}

Tensors = dict[str, torch.Tensor]
OpenOnnx = Callable[..., OnnxSpeechLM]


@pytest.fixture
def no_garbage_goes() -> Iterator[None]:
    """What earlier tests left is freed before this one, and not while it looks at the process's memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> SpeechLMConfig:
    """Of each family."""
    return CONFIGS[request.param]


@pytest.fixture(scope="session")
def published(config: SpeechLMConfig) -> Tensors:
    """Tensors under their published names, large enough for distinct logits."""
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=generator) * (0.2 if len(shape) > 1 else 1)
        for name, shape in llm_schema(config).items()
    }


@pytest.fixture(scope="session")
def lm(config: SpeechLMConfig, published: Tensors) -> SpeechLM:
    return SpeechLM.from_tensors(config, published)


@pytest.fixture(scope="session")
def open_onnx(
    config: SpeechLMConfig, published: Tensors, tmp_path_factory: pytest.TempPathFactory
) -> OpenOnnx:
    """``open_onnx(weight_format, heads, **changed tensors)``."""

    def open_onnx(weight_format: str = "float32", heads: Heads = (), **changes: torch.Tensor) -> OnnxSpeechLM:
        files = LmFiles(tmp_path_factory.mktemp(weight_format))
        tensors = {name: tensor.numpy() for name, tensor in (published | changes).items()}
        write_lm(config, FloatArrays(tensors), files, weight_format, heads)
        return OnnxSpeechLM(config, files, threads=1)

    return open_onnx


@pytest.fixture(scope="session")
def onnx_lm(open_onnx: OpenOnnx) -> OnnxSpeechLM:
    return open_onnx()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "speech_lm"
