"""The engine build, with a ``trtllm-build`` that takes what the real one takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.errors import EngineFileError, InvalidInput
from cosyvoice_runtime.gpu.nvidia import Gpu
from cosyvoice_runtime.lm.engines.tensorrt_llm import build as build_module
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import (
    BIAS_FILE,
    MODEL_CLASS,
    MODEL_FILE,
    TIMING_CACHE,
    BuildOptions,
    build,
    build_flags,
    command,
)
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import LAYOUTS
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert
from cosyvoice_runtime.manifest import Manifest
from trtllm_fake import build_command

OPTIONS = BuildOptions(max_batch_size=8, max_seq_len=256, max_num_tokens=256)


@pytest.fixture
def checkpoint(tiny_checkpoint, tmp_path) -> Path:
    convert(tiny_checkpoint, tmp_path / "converted", ConversionOptions())
    return tmp_path / "converted"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_flag_is_in_the_stored_table_with_a_value_that_it_takes(layout, dtype):
    flags = build_flags(BuildOptions(), layout, dtype)
    values = build_command.parse(command(Path("a"), Path("b"), Path("c"), flags)[1:])
    assert values.keys() == {flag.name for flag in flags} | {
        "checkpoint_dir",
        "output_dir",
        "input_timing_cache",
        "output_timing_cache",
    }
    assert len({flag.name for flag in flags}) == len(flags)
    assert all(flag.why for flag in flags)


@pytest.mark.parametrize(
    "arguments", [["--use_inflight_batching", "enable"], ["--gemm_plugin", "fast"], ["--max_seq_len", "long"]]
)
def test_stored_table_refuses_what_is_not_in_it(arguments):
    with pytest.raises(SystemExit, match=arguments[0]):
        build_command.parse(arguments)


def test_what_in_flight_batching_and_reuse_of_prompts_need_is_on():
    values = {flag.name: flag.value for flag in build_flags(BuildOptions(), "merged", "bfloat16")}
    assert values["gpt_attention_plugin"] == values["gemm_plugin"] == "bfloat16"
    assert (values["remove_input_padding"], values["kv_cache_type"]) == ("enable", "paged")
    assert (values["use_paged_context_fmha"], values["max_batch_size"]) == ("enable", "64")
    assert int(values["max_num_tokens"]) >= int(values["max_seq_len"]) == int(values["max_input_len"])
    # the merged layout adds its bias to the logits, and TensorRT-LLM wants both in one dtype
    assert values["logits_dtype"] == "float32"


def test_model_class_comes_with_the_speech_layout_only():
    assert not [flag for flag in build_flags(OPTIONS, "merged", "float16") if "model_cls" in flag.name]
    values = {flag.name: flag.value for flag in build_flags(OPTIONS, "speech", "float16")}
    assert (values["model_cls_file"], values["model_cls_name"]) == (str(MODEL_FILE), MODEL_CLASS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_engine_has_its_manifest_and_the_bias_it_needs(fake, tiny_checkpoint, tmp_path, layout):
    convert(tiny_checkpoint, tmp_path / "converted", ConversionOptions(layout=layout))
    build(tmp_path / "converted", tmp_path / "engine", OPTIONS)
    manifest = Manifest.read(tmp_path / "engine")
    assert manifest.tools == {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"}
    assert (manifest.gpu, manifest.compute_capability) == ("NVIDIA H100 80GB HBM3", "9.0")
    assert manifest.sources["llm.pt"] == sha256_of(tiny_checkpoint / "llm.pt")
    assert (manifest.options["layout"], manifest.options["max_batch_size"]) == (layout, 8)
    assert (tmp_path / "engine" / BIAS_FILE).exists() == (layout == "merged")
    assert (tmp_path / TIMING_CACHE).exists()
    limits = json.loads((tmp_path / "engine" / "config.json").read_text())["build_config"]
    assert (limits["max_batch_size"], limits["max_seq_len"]) == (8, 256)


def test_same_engine_is_not_built_again(fake, checkpoint, tmp_path, monkeypatch):
    engine = tmp_path / "engine"
    assert build(checkpoint, engine, OPTIONS)
    assert build(checkpoint, engine, OPTIONS) == []
    assert build(checkpoint, engine, BuildOptions(8, 128, 128)) == [
        "option flags.max_input_len was '256' when built, now '128'",
        "option flags.max_num_tokens was '256' when built, now '128'",
        "option flags.max_seq_len was '256' when built, now '128'",
        "option max_num_tokens was 256 when built, now 128",
        "option max_seq_len was 256 when built, now 128",
    ]
    monkeypatch.setattr(build_module, "present_gpu", lambda: Gpu("NVIDIA L20", "8.9"))
    assert build(checkpoint, engine, BuildOptions(8, 128, 128)) == [
        "GPU was 'NVIDIA H100 80GB HBM3' when built, now 'NVIDIA L20'",
        "compute capability was '9.0' when built, now '8.9'",
    ]


def test_other_weights_make_another_engine(fake, checkpoint, tiny_checkpoint, tmp_path):
    build(checkpoint, tmp_path / "engine", OPTIONS)
    convert(tiny_checkpoint, checkpoint, ConversionOptions(weight_only="int8"))
    assert build(checkpoint, tmp_path / "engine", OPTIONS) == [
        "option weight_only was 'none' when built, now 'int8'"
    ]


def test_fp8_engine_is_built_without_the_gemm_plugin_where_the_gpu_has_fp8(
    fake, tiny_checkpoint, tmp_path, monkeypatch
):
    convert(tiny_checkpoint, tmp_path / "converted", ConversionOptions(weight_only="fp8"))
    build(tmp_path / "converted", tmp_path / "engine", OPTIONS)
    made = Manifest.read(tmp_path / "engine").options
    assert (made["weight_only"], made["flags"]["gemm_plugin"]) == ("fp8", "disable")
    monkeypatch.setattr(build_module, "present_gpu", lambda: Gpu("NVIDIA A100", "8.0"))
    with pytest.raises(EngineFileError, match=r"NVIDIA A100 has compute capability 8\.0 and no FP8"):
        build(tmp_path / "converted", tmp_path / "engine", OPTIONS)


def test_failed_build_leaves_no_engine(fake, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_BUILD_FAILS", "1")
    with pytest.raises(EngineFileError, match=r"trtllm-build failed with status 1; .*python -m .*preflight"):
        build(checkpoint, tmp_path / "engine", OPTIONS)
    assert not (tmp_path / "engine").exists()


def test_without_trtllm_build_the_container_is_named(fake, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineFileError, match=r"trtllm-build is not installed; .*:26\.07-trtllm-python-py3"):
        build(checkpoint, tmp_path / "engine", OPTIONS)


def test_without_tensorrt_llm_the_container_is_named(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(build_module, "present_gpu", lambda: Gpu("NVIDIA L20", "8.9"))
    with pytest.raises(EngineFileError, match=r"tensorrt_llm can't be imported .*:26\.07-trtllm-python-py3"):
        build(checkpoint, tmp_path / "engine", OPTIONS)


def test_without_a_gpu_nothing_is_built(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineFileError, match="this process sees no GPU"):
        build(checkpoint, tmp_path / "engine", OPTIONS)


def test_unconverted_checkpoint_is_refused(fake, tiny_checkpoint, tmp_path):
    with pytest.raises(EngineFileError, match=r"manifest\.json is missing"):
        build(tiny_checkpoint, tmp_path / "engine", OPTIONS)


def test_directory_with_something_else_is_kept(fake, checkpoint, tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "mine.txt").write_text("precious")
    with pytest.raises(InvalidInput, match="is not empty"):
        build(checkpoint, tmp_path / "engine", OPTIONS)
    assert (tmp_path / "engine" / "mine.txt").exists()
