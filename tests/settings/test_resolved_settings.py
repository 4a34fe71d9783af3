"""What `auto` becomes on a machine: engines, devices, memory and sizes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3, COSYVOICE_300M
from cosyvoice_runtime.lm.torch.kv_cache import cache_bytes
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings
from making import architecture_cosyvoice300m

CPU = Machine(cores=8, gpu=False)
GPU = Machine(cores=32, gpu=True)


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_nothing_is_auto_once_resolved_but_what_only_a_running_model_knows(machine):
    resolved = Settings().resolved(machine)
    placeholders = {
        f"{name}.{key}": text
        for name, section in resolved.sections().items()
        for key, text in section.placeholders().items()
    }
    # How fast the machine is shows while it runs; how a speech LM takes text says its checkpoint; which
    # kernels a GPU can run knows the process that has it; what a text is written in says the text.
    assert [key for key, text in placeholders.items() if text == "auto"] == [
        "cosyvoice2.text_markup",
        "cosyvoice2.max_inflight_utterances",
        "cosyvoice2.text_feeding",
        "tensorrt_llm.kernels",
        "token2wav.kernels",
    ]
    assert resolved.resolved(dataclasses.replace(machine, gpu=not machine.gpu)) == resolved


def test_auto_follows_the_machine():
    on_gpu = Settings().resolved(GPU).tensorrt_llm
    assert (on_gpu.dtype, on_gpu.threads) == ("bfloat16", 1)
    on_cpu = Settings().resolved(CPU).tensorrt_llm
    assert (on_cpu.device, on_cpu.dtype, on_cpu.threads, on_cpu.max_slots) == ("cpu", "float32", 4, 16)
    assert on_cpu.kv_cache_tokens == 16 * on_cpu.max_sequence_tokens


def test_the_longest_request_of_each_family_has_room(tmp_path):
    """1,000 ids of a transcript, 240 of text, a reference of 30 s, all new tokens and three marks."""
    for family, rate, positions in (
        (COSYVOICE2, 25, 4096),
        (COSYVOICE3, 25, 4096),
        (COSYVOICE_300M, 50, 5000),
    ):
        directory = tmp_path / family.name
        directory.mkdir()
        (directory / family.config_file).touch()
        for machine in (CPU, GPU):
            given = [f"checkpoint_dir={directory}", "tensorrt_llm.engine=torch"]
            resolved = Settings.read(given).resolved(machine).tensorrt_llm
            assert resolved.max_sequence_tokens == positions
            assert 1000 + 240 + 30 * rate + resolved.max_tokens + 3 <= positions


def test_cosyvoice300ms_cache_fits_small_gpus(tmp_path):
    (tmp_path / COSYVOICE_300M.config_file).touch()
    resolved = Settings.read([f"checkpoint_dir={tmp_path}"]).resolved(GPU)
    assert resolved.tensorrt_llm.max_slots == 16
    assert resolved.tensorrt_llm.kv_cache_tokens == 16 * 5000
    speech_lm = architecture_cosyvoice300m.FULL.speech_lm
    cache_gib = cache_bytes(speech_lm, 16, 5000, torch.bfloat16) / 2**30
    assert cache_gib == pytest.approx(resolved.tensorrt_llm.gib_on(None) - 1.7, abs=0.1)
    assert resolved.token2wav.gpu_reserve_gib == pytest.approx(1 + 1.7 + cache_gib, abs=0.1)


@pytest.mark.parametrize(
    ("machine", "engine", "longest"),
    [
        (GPU, "torch", 64),
        (GPU, "tensorrt_llm", 256),
        (GPU, "vllm", 256),
        (CPU, "torch", 256),
        (CPU, "onnx", 256),
    ],
)
def test_a_cache_that_requests_share_need_not_fit_all_of_the_longest(machine, engine, longest):
    settings = TensorrtLlmSettings(engine=engine, max_slots=256, max_sequence_tokens=1000, max_tokens=500)
    assert settings.resolved(machine).kv_cache_tokens == longest * 1000


@pytest.mark.parametrize(
    ("engine", "feeding"),
    [("torch", "auto"), ("onnx", "auto"), ("vllm", "clauses"), ("tensorrt_llm", "clauses")],
)
def test_an_engine_that_takes_text_whole_gets_clauses(engine, feeding):
    assert Settings.read([f"tensorrt_llm.engine={engine}"]).resolved(GPU).cosyvoice2.text_feeding == feeding


def test_an_engine_that_takes_text_whole_is_not_fed_between_speech():
    asked = ["tensorrt_llm.engine=vllm", "cosyvoice2.text_feeding=interleaved"]
    with pytest.raises(InvalidInput, match=r"cosyvoice2\.text_feeding.*engine=vllm"):
        Settings.read(asked).resolved(GPU)


@pytest.mark.parametrize(
    ("assignments", "divided"),
    [
        ([], True),
        (["tensorrt_llm.engine=vllm"], False),
        (["tensorrt_llm.device=cpu"], True),
    ],
)
def test_no_gpu_is_divided_that_another_engine_computes_on(assignments, divided):
    assert Settings.read(assignments).resolved(GPU).token2wav.first_chunks_beside is divided


@pytest.mark.parametrize(
    ("assignments", "reserve"),
    [
        ([], 1 + 2.7 + 0.7 + 64 * 4096 * 12_288 / 2**30),
        (["tensorrt_llm.max_slots=256"], 1 + 2.7 + 0.7 + 64 * 4096 * 12_288 / 2**30),
        (["tensorrt_llm.max_slots=8"], 1 + 2.7 + 0.7 + 8 * 4096 * 12_288 / 2**30),
        (["tensorrt_llm.kernels=plain"], 1 + 2.7 + 64 * 4096 * 12_288 / 2**30),
        (["tensorrt_llm.device=cpu"], 1),
        (["token2wav.gpu_reserve_gib=3.5"], 3.5),
    ],
)
def test_token2wav_leaves_the_speech_lm_its_memory_on_a_gpu_of_both(assignments, reserve):
    resolved = Settings.read(assignments).resolved(GPU).token2wav
    assert resolved.gpu_reserve_gib == pytest.approx(reserve, abs=0.1)
    assert (resolved.max_flow_pages, resolved.most_flow_memory) == (4096, 0.8)


@pytest.mark.parametrize(
    ("assignments", "machine", "batch"),
    [
        ([], GPU, 16),
        ([], CPU, 8),
        (["token2wav.device=cpu"], GPU, 8),
        (["token2wav.backend=tensorrt"], GPU, 8),
        (["token2wav.max_batch=5"], GPU, 5),
    ],
)
def test_token2wav_takes_more_utterances_at_once_on_a_gpu(assignments, machine, batch):
    assert Settings.read(assignments).resolved(machine).token2wav.max_batch == batch


def test_given_value_is_not_replaced_by_auto():
    given = Settings.read(["device=cuda:1", "token2wav.dtype=bfloat16", "tensorrt_llm.threads=3"])
    resolved = given.resolved(CPU)
    assert resolved.token2wav.device == "cuda:1"
    assert resolved.token2wav.dtype == "bfloat16"
    assert resolved.tensorrt_llm.threads == 3


def test_ras_with_engine_tensorrt_llm_is_told_when_the_settings_are_read(caplog):
    Settings.read(["tensorrt_llm.engine=tensorrt_llm", "device=cuda"]).resolved(GPU)
    assert "engine torch is the faster one for ras" in caplog.text
    caplog.clear()
    Settings.read(["tensorrt_llm.engine=tensorrt_llm", "sampling=nucleus"]).resolved(GPU)
    Settings.read([]).resolved(GPU)
    assert not caplog.text


@pytest.mark.parametrize(
    ("texts", "machine", "engine", "device"),
    [
        ([], CPU, "onnx", "cpu"),
        ([], GPU, "torch", "cuda"),
        (["tensorrt_llm.device=cpu"], GPU, "onnx", "cpu"),
        (["engine=onnx"], GPU, "onnx", "cpu"),
        (["engine=torch"], CPU, "torch", "cpu"),
        (["tensorrt_llm.kernels=fused"], GPU, "torch", "cuda"),
    ],
)
def test_engine_is_chosen_for_the_device_and_said(texts, machine, engine, device, caplog):
    lm = chosen(texts, machine, caplog).tensorrt_llm
    assert (lm.engine, lm.device) == (engine, device)
    given = any(text.startswith("engine=") for text in texts)
    assert (f"tensorrt_llm.engine: auto is {engine}: " in caplog.text) != given


NO_TORCH, NO_ONNX = Machine(1, False, torch=False), Machine(1, False, onnx=False)
ALONE = "stage 1 needs the package onnx"


@pytest.mark.parametrize(
    ("config_file", "texts", "machine", "engine", "backend", "reason"),
    [
        ("cosyvoice2.yaml", [], CPU, "onnx", "onnx", "the faster one"),
        ("cosyvoice2.yaml", [], NO_TORCH, "onnx", "onnx", "the faster one"),
        ("cosyvoice2.yaml", [], NO_ONNX, "torch", "torch", ALONE),
        ("cosyvoice2.yaml", [], Machine(1, False, torch=False, onnx=False), "onnx", "onnx", "torch is not"),
        ("cosyvoice2.yaml", ["dtype=bfloat16"], CPU, "torch", "torch", "token2wav.dtype=bfloat16 needs it"),
        ("cosyvoice2.yaml", ["device=cuda:1"], GPU, "torch", "torch", "the device is cuda:1"),
        ("cosyvoice3.yaml", [], CPU, "onnx", "onnx", "the faster one"),
        ("cosyvoice.yaml", [], CPU, "torch", "torch", "nothing else runs cosyvoice300m"),
        ("cosyvoice.yaml", [], NO_TORCH, "torch", "torch", "nothing else runs cosyvoice300m"),
        ("cosyvoice2.yaml", ["engine=torch", "token2wav.backend=torch"], NO_TORCH, "torch", "torch", ""),
    ],
)
def test_what_runs_on_a_cpu_is_chosen_for_the_family(
    tmp_path, config_file, texts, machine, engine, backend, reason, caplog
):
    (tmp_path / config_file).touch()
    places = [f"checkpoint_dir={tmp_path}", f"engine_dir={tmp_path}/lm", f"backend_dir={tmp_path}/networks"]
    settings = chosen([*places, *texts], machine, caplog)
    assert (settings.tensorrt_llm.engine, settings.token2wav.backend) == (engine, backend)
    assert reason in caplog.text


def chosen(texts: list[str], machine: Machine, caplog: pytest.LogCaptureFixture) -> Settings:
    """These settings for a machine, and what is said of them."""
    given = Settings.read(texts)
    resolved = given.resolved(machine)
    with caplog.at_level("INFO"):
        given.tell_choices(resolved, machine)
    return resolved


def test_files_of_stage_1_are_read_where_they_can_not_be_written(tmp_path):
    places = [f"engine_dir={tmp_path}/lm", f"token2wav.backend_dir={tmp_path}/networks"]
    for folder in ("lm", "networks/onnx_cpu"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
    settings = Settings.read(places).resolved(NO_ONNX)
    assert (settings.tensorrt_llm.engine, settings.token2wav.backend) == ("onnx", "onnx")


def test_engines_that_a_file_names_win_over_the_machine(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[tensorrt_llm]\nengine = 'torch'\n[token2wav]\nbackend = 'torch'\n")
    settings = Settings.read(environment={"COSYVOICE_SETTINGS": str(file)}).resolved(NO_TORCH)
    assert (settings.tensorrt_llm.engine, settings.token2wav.backend) == ("torch", "torch")


@pytest.mark.parametrize(
    ("texts", "cores", "device"),
    [
        (["token2wav.backend=auto"], 2, "cpu,cpu"),
        (["token2wav.backend=onnx"], 8, "cpu,cpu"),
        (["token2wav.backend=onnx"], 1, "cpu"),
        (["token2wav.backend=onnx", "token2wav.device=cpu"], 8, "cpu"),
        (["token2wav.backend=torch"], 8, "cpu"),
    ],
)
def test_several_cores_take_two_utterances_at_a_time_on_onnx_runtime(texts, cores, device):
    assert Settings.read(texts).resolved(Machine(cores=cores, gpu=False)).token2wav.device == device


@pytest.mark.parametrize(
    ("texts", "machine", "kept"),
    [
        ([], CPU, "float32"),
        (["token2wav.page_format=float8"], CPU, "float8"),
        (["token2wav.page_format=int8"], CPU, "int8"),
        ([], GPU, "float16"),
        (["token2wav.dtype=bfloat16"], GPU, "bfloat16"),
        (["token2wav.page_format=int8"], GPU, "int8"),
        (["token2wav.page_format=float16"], GPU, "float16"),
    ],
)
def test_pages_are_kept_as_the_network_computes_unless_told_otherwise(texts, machine, kept):
    token2wav = Settings.read(texts).resolved(machine).token2wav
    assert token2wav.page_format == kept
    assert token2wav.backend == ("onnx" if kept in ("float32", "float8") else "torch")


def test_resolved_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Settings.read(["checkpoint_dir=here"]).resolved(CPU).cosyvoice2.checkpoint_dir == tmp_path / "here"


@pytest.mark.parametrize(
    ("machine", "first_hop", "growth"),
    [(CPU, 18, 0.5), (GPU, 16, 2.0)],
    ids=["cpu", "gpu"],
)
def test_speech_begins_sooner_and_chunks_grow_faster_where_a_gpu_computes(machine, first_hop, growth):
    resolved = Settings().resolved(machine)
    assert resolved.cosyvoice2.first_hop_tokens == first_hop
    assert resolved.token2wav.hop_growth == growth


def test_a_first_chunk_that_is_given_stays():
    assert Settings.read(["first_hop_tokens=30"]).resolved(GPU).cosyvoice2.first_hop_tokens == 30
