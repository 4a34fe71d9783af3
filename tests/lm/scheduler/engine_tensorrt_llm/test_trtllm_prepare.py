"""When the engine ``tensorrt_llm`` is refused, and which GPU it takes."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest
import torch
from engine_drivers import refusal

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.nvidia import Gpu
from cosyvoice_runtime.lm.engines.engine import prepare_engine, see_only
from cosyvoice_runtime.lm.engines.tensorrt_llm import prepare
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BuildOptions, build
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert


@pytest.fixture(params=["merged", "speech"])
def layout(request) -> str:
    return request.param


@pytest.fixture
def settings(trtllm_settings, layout):
    return trtllm_settings(layout)


def test_without_the_module_the_container_is_named(settings):
    assert refusal(settings) == (
        "tensorrt_llm.engine: 'tensorrt_llm' is not accepted; the module tensorrt_llm is not installed; "
        "NVIDIA's container nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 has it"
    )


def test_settings_that_the_engine_was_not_built_for_are_refused(trtllm, settings, tmp_path):
    assert "tensorrt_llm.device: 'cpu' is not accepted; engine tensorrt_llm needs cuda" in refusal(
        settings, device="cpu"
    )
    assert "tensorrt_llm.device: 'cuda:2' is not accepted; CUDA_VISIBLE_DEVICES is 0,1" in refusal(
        settings, device="cuda:2"
    )
    settings = settings.replace(device="cuda")
    assert "tensorrt_llm.max_slots: 9 is not accepted; the engine was built for at most 8" in refusal(
        settings, max_slots=9
    )
    assert "max_sequence_tokens: 300 is not accepted; the engine was built for at most 256" in refusal(
        settings, max_sequence_tokens=300
    )
    assert "option dtype was 'float32' when built, now 'bfloat16'" in refusal(settings, dtype="bfloat16")
    assert "manifest.json is missing: nothing was built here" in refusal(settings, engine_dir=tmp_path)


def test_engine_of_other_weights_libraries_or_gpus_is_refused(trtllm, settings, tmp_path, monkeypatch):
    settings = settings.replace(device="cuda")
    changed = shutil.copytree(settings.checkpoint_dir, tmp_path / "changed")
    content = bytearray((changed / "llm.pt").read_bytes())
    content[-1] ^= 1
    (changed / "llm.pt").write_bytes(content)
    (changed / "SHA256SUMS").unlink()
    assert "source llm.pt was '" in refusal(settings, checkpoint_dir=changed)
    monkeypatch.setattr(sys.modules["tensorrt_llm"], "__version__", "1.3.0")
    assert "version of tensorrt_llm was '1.2.1' when built, now '1.3.0'" in refusal(settings)
    monkeypatch.setattr(prepare, "present_gpu", lambda: Gpu("NVIDIA L4", "8.9"))
    assert "GPU was 'NVIDIA H100 80GB HBM3' when built, now 'NVIDIA L4'" in refusal(settings)


def test_fp8_engine_is_taken_where_the_settings_say_so(trtllm, trtllm_settings, tiny_checkpoint, tmp_path):
    convert(tiny_checkpoint, tmp_path / "converted", ConversionOptions(dtype="float32", weight_only="fp8"))
    build(tmp_path / "converted", tmp_path / "engine", BuildOptions(8, 256, 256))
    given = trtllm_settings("merged", device="cuda", engine_dir=tmp_path / "engine")
    prepare_engine(given.replace(weight_only="fp8"))
    assert "option weight_only was 'fp8' when built, now 'none'" in refusal(given)


def test_price_of_ras_is_told(trtllm, settings, caplog):
    prepare_engine(settings.replace(device="cuda"))
    assert "engine torch is the faster one for ras" in caplog.text


def test_weights_from_elsewhere_are_told(trtllm, settings, tmp_path, caplog):
    directory = shutil.copytree(settings.engine_dir, tmp_path / "engine")
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["sources"] = {"model.safetensors": "0" * 64}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    prepare_engine(settings.replace(engine_dir=directory))
    assert "converted from a directory other than the checkpoint" in caplog.text


@pytest.mark.parametrize("layout", ["merged"], indirect=True)
def test_engine_without_its_bias_is_refused(trtllm, settings, tmp_path):
    directory = shutil.copytree(settings.engine_dir, tmp_path / "engine")
    (directory / "embedding_bias.safetensors").unlink()
    assert "embedding_bias.safetensors: missing or damaged" in refusal(settings, engine_dir=directory)


def test_gpu_is_chosen_before_tensorrt_llm_is_imported(trtllm, settings, monkeypatch):
    visible = []
    versions = prepare.library_versions
    monkeypatch.setattr(
        prepare,
        "library_versions",
        lambda: visible.append(os.environ["CUDA_VISIBLE_DEVICES"]) or versions(),
    )
    prepare_engine(settings)
    assert visible == ["1"]


@pytest.mark.parametrize(
    ("listed", "device", "left"),
    [(None, "cuda", "0"), (None, "cuda:3", "3"), ("4,7", "cuda:1", "7"), ("GPU-1f", "cuda", "GPU-1f")],
)
def test_process_sees_only_its_gpu(monkeypatch, listed, device, left):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if listed is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    see_only(device, "tensorrt_llm")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


def test_gpu_can_not_be_chosen_when_cuda_is_in_use(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(InvalidInput, match="CUDA is in use in this process already"):
        see_only("cuda:1", "tensorrt_llm")
