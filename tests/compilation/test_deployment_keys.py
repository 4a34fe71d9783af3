"""Deployments have one key as long as they compile the same kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.voice_adapters import AdapterForm
from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.gpu import nvidia
from cosyvoice_runtime.gpu.nvidia import GpuLimits, gpu_limits
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from making import architecture, architecture_cosyvoice3

GIB = 2**30
H100 = GpuLimits((9, 0), 232_448, 132, 80 * GIB)
LM = TensorrtLlmSettings(
    engine="torch", device="cuda", dtype="bfloat16", max_slots=64, max_sequence_tokens=4096,
    kv_cache_tokens=64 * 4096,
)  # fmt: skip
WAVE = Token2WavSettings(backend="torch", device="cuda", dtype="float16", page_format="float16")


def distilled(**changed: Any) -> ModelConfig:
    """The usual checkpoint whose flow has another schedule."""
    return replace(architecture.FULL, flow=replace(architecture.FULL.flow, **changed))


USUAL = Deployment(architecture.FULL, LM, WAVE, H100)


@pytest.mark.parametrize(
    "other",
    [
        USUAL._replace(lm=LM.replace(max_queue_size=9), wave=WAVE.replace(idle_timeout_s=9.0)),
        USUAL._replace(gpu=H100._replace(total_bytes=79 * GIB)),
        USUAL._replace(lm=LM.replace(checkpoint_dir=Path("elsewhere"))),
        USUAL._replace(wave=WAVE.replace(ode_steps=0)),
    ],
    ids=["other settings", "another card of the kind", "another folder", "as many steps"],
)
def test_what_compiles_the_same_has_one_key(other):
    assert other.key == USUAL.key


@pytest.mark.parametrize(
    "other",
    [
        USUAL._replace(config=architecture_cosyvoice3.FULL),
        USUAL._replace(wave=WAVE.replace(ode_steps=7)),
        USUAL._replace(wave=WAVE.replace(solver="adams_bashforth")),
        USUAL._replace(config=distilled(times=(0.0, 0.5))),
        USUAL._replace(config=distilled(cfg_rate=0.0)),
        USUAL._replace(lm=LM.replace(max_slots=32)),
        USUAL._replace(lm=LM.replace(gpu_share=0.0)),
        USUAL._replace(wave=WAVE.replace(page_format="int8")),
        USUAL._replace(wave=WAVE.replace(max_gpu_gib=24.0)),
        USUAL._replace(gpu=H100._replace(capability=(8, 9))),
        USUAL._replace(gpu=H100._replace(multiprocessors=114)),
        USUAL._replace(gpu=H100._replace(total_bytes=24 * GIB)),
        USUAL._replace(adapters=AdapterForm(16, ("mlp.down",))),
        USUAL._replace(adapters=AdapterForm(64, ("mlp.down",))),
    ],
)
def test_what_compiles_otherwise_has_another_key(other):
    assert other.key != USUAL.key


def test_a_file_of_tiles_changes_the_key(tmp_path):
    keys = set()
    for text in ("one", "two"):
        (tmp_path / "row.json").write_text(text)
        keys.add(USUAL._replace(wave=WAVE.replace(kernels_file=str(tmp_path / "row.json"))).key)
    assert len(keys | {USUAL.key}) == 3


def test_a_machine_without_a_driver_has_no_limits(monkeypatch):
    monkeypatch.setattr(nvidia, "LIBRARY", "libcuda-that-is-not-there.so")
    with pytest.raises(EngineFileError, match="sees no GPU"):
        gpu_limits(0)
