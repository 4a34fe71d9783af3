"""When the engine ``vllm`` is refused, which GPU it takes, and what it tells vLLM."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError

import torch
from coded_vllm import CodedModel
from engine_drivers import refusal

from cosyvoice_runtime.lm.engines import vllm as vllm_engine
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from vllm_fake.install import GPU_BYTES


def test_without_vllm_the_container_is_named(vllm_settings, monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(vllm_engine, "version", absent)
    assert refusal(vllm_settings()) == (
        "tensorrt_llm.engine: 'vllm' is not accepted; vllm is not installed; this version works with "
        "0.24.0 or 0.27.1: nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3 has 0.24.0, "
        "nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3 has 0.27.1"
    )


def test_another_release_is_refused_and_a_build_label_is_not(vllm, vllm_settings, monkeypatch):
    release = vllm_engine.version("vllm")
    monkeypatch.setattr(vllm_engine, "version", lambda name: "0.33.0")
    said = refusal(vllm_settings())
    assert "vllm 0.33.0 is installed, this version works with 0.24.0 or 0.27.1: nvcr" in said
    monkeypatch.setattr(vllm_engine, "version", lambda name: f"{release}+b1082979.nv26.8")
    prepare_engine(vllm_settings())


def test_settings_that_do_not_fit_are_refused(vllm, vllm_settings, tmp_path):
    settings = vllm_settings()
    assert "device: 'cpu' is not accepted; engine vllm needs cuda or cuda:N" in refusal(
        settings, device="cpu"
    )
    assert "device: 'cuda:2' is not accepted; CUDA_VISIBLE_DEVICES is 0,1" in refusal(
        settings, device="cuda:2"
    )
    settings = settings.replace(device="cuda")
    assert "engine vllm needs max_slots * max_sequence_tokens, which is 1024" in refusal(
        settings, kv_cache_tokens=1023
    )
    assert "max_sequence_tokens: 40000 is not accepted; the network has 32768 positions" in refusal(
        settings, max_sequence_tokens=40_000
    )
    assert "manifest.json is missing: nothing was built here" in refusal(settings, engine_dir=tmp_path)


def test_export_of_another_dtype_or_other_weights_is_refused(vllm, vllm_settings, tmp_path):
    settings = vllm_settings()
    assert "dtype was 'float32' when built, now 'bfloat16'" in refusal(settings, dtype="bfloat16")
    settings = settings.replace(device="cuda")
    changed = shutil.copytree(settings.checkpoint_dir, tmp_path / "changed")
    content = bytearray((changed / "llm.pt").read_bytes())
    content[-1] ^= 1
    (changed / "llm.pt").write_bytes(content)
    (changed / "SHA256SUMS").unlink()
    assert "source llm.pt was '" in refusal(settings, checkpoint_dir=changed)


def test_one_gpu_is_visible_before_vllm_is_imported(vllm, vllm_settings):
    open_engine = prepare_engine(vllm_settings(device="cuda:1"))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert vllm.engines == []
    vllm.load_model = lambda directory: CodedModel(directory, {})
    open_engine()
    assert len(vllm.engines) == 1


def test_vllm_is_told_what_the_settings_promise(vllm, vllm_settings):
    vllm.load_model = lambda directory: CodedModel(directory, {})
    settings = vllm_settings()
    prepare_engine(settings)()
    args = vllm.engines[-1].args
    assert args["logits_processors"] == ["cosyvoice_runtime.lm.engines.vllm.sampler:SpeechSampler"]
    assert (args["max_num_seqs"], args["max_model_len"], args["dtype"]) == (4, 256, "float32")
    assert args["skip_tokenizer_init"] is args["enable_prompt_embeds"] is True
    assert args["enable_chunked_prefill"] is args["async_scheduling"] is False
    blocks = 4 * 256 // 16 + 4 + 1
    bytes_per_position = args["kv_cache_memory_bytes"] / (16 * blocks)
    assert bytes_per_position == 2 * _kv_width(settings) * torch.float32.itemsize
    assert args["gpu_memory_utilization"] == args["kv_cache_memory_bytes"] / GPU_BYTES


def _kv_width(settings) -> int:
    from cosyvoice_runtime.checkpoint import load_config

    lm = load_config(settings.checkpoint_dir).speech_lm
    return lm.num_layers * lm.num_kv_heads * lm.head_dim
