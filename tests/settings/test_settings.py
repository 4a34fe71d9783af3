"""Defaults, the ways to give values, checks, and the round trip through a template's text."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from pydantic import ValidationError

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3, COSYVOICE_300M
from cosyvoice_runtime.lm.torch.kv_cache import cache_bytes
from cosyvoice_runtime.settings import (
    Machine,
    ServerSettings,
    Settings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.removed import REMOVED
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS
from making import architecture_cosyvoice300m

CPU = Machine(cores=8, gpu=False)
GPU = Machine(cores=32, gpu=True)
SECTIONS = sorted(Settings().sections())


def parameters(texts: dict[str, str]) -> dict[str, dict[str, str]]:
    return {key: {"string_value": text} for key, text in texts.items()}


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("machine", [None, CPU, GPU], ids=["auto", "cpu", "gpu"])
def test_section_reads_back_what_its_placeholders_say(name, machine):
    settings = Settings() if machine is None else Settings().resolved(machine)
    section = settings.sections()[name]
    assert type(section).from_parameters(parameters(section.placeholders())) == section


@pytest.mark.parametrize("name", SECTIONS)
def test_every_field_has_a_doc_line_and_a_limit(name):
    for row in type(Settings().sections()[name]).describe():
        assert row.doc.endswith("."), row
        assert "\n" not in row.doc, row
        assert row.limit, row


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_nothing_is_auto_once_resolved_but_what_only_a_running_model_knows(machine):
    resolved = Settings().resolved(machine)
    placeholders = {
        f"{name}.{key}": text
        for name, section in resolved.sections().items()
        for key, text in section.placeholders().items()
    }
    # How fast the machine is shows while it runs; how a speech LM takes text says its checkpoint; which
    # kernels a GPU can run knows the process that has it.
    assert [key for key, text in placeholders.items() if text == "auto"] == [
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
    ("assignments", "divided"),
    [
        ([], True),
        (["tensorrt_llm.engine=vllm"], False),
        (["tensorrt_llm.engine=vllm", "token2wav.device=cuda:0,cuda:1"], False),
        (["tensorrt_llm.engine=vllm", "token2wav.device=cuda:1"], True),
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
        (["token2wav.device=cuda:0,cuda:1"], 1 + 2.7 + 0.7 + 64 * 4096 * 12_288 / 2**30),
        (["tensorrt_llm.kernels=plain"], 1 + 2.7 + 64 * 4096 * 12_288 / 2**30),
        (["token2wav.device=cuda:1"], 1),
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


@pytest.mark.parametrize(
    ("text", "devices", "dtype"),
    [("cuda:1,cuda:2", ("cuda:1", "cuda:2"), "float16"), ("cpu,cpu", ("cpu", "cpu"), "float32")],
)
def test_token2wav_runs_on_several_devices(text, devices, dtype):
    resolved = Settings.read([f"token2wav.device={text}"]).resolved(GPU).token2wav
    assert (resolved.devices, resolved.dtype) == (devices, dtype)
    each = resolved.on_each_device()
    assert [one.device for one in each] == [*devices]
    assert Token2WavSettings.from_parameters(parameters(resolved.placeholders())) == resolved


@pytest.mark.parametrize("device", ["cuda,cuda", "cuda,cuda:0", "cuda:1,cuda:2,cuda:1"])
def test_a_gpu_is_one_schedulers(device):
    with pytest.raises(InvalidInput, match=rf"token2wav\.device: '{device}'.*each GPU once"):
        Token2WavSettings(device=device)
    assert Token2WavSettings(device="cpu,cpu").devices == ("cpu", "cpu")


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
    ("assignment", "limit"),
    [
        ("tensorrt_llm.device=cuda:1", "cpu with engine onnx"),
        ("tensorrt_llm.dtype=bfloat16", "float32 with engine onnx"),
        ("tensorrt_llm.weight_format=int4", "one of float32, int8, int8_rows"),
    ],
)
def test_engine_onnx_refuses_what_it_does_not_do(assignment, limit):
    field, _, value = assignment.partition("=")
    with pytest.raises(InvalidInput, match=rf"{field}: '{value}' is not accepted; {limit}"):
        Settings.read(["engine=onnx", assignment])


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


@pytest.mark.parametrize(
    ("texts", "limit"),
    [
        (["page_format=float8", "device=cuda"], "auto or one of float16, int8 with backend torch"),
        (["page_format=float16", "dtype=float32", "device=cuda"], "auto or one of float32, int8 with"),
        (["page_format=int8", "backend=onnx"], "auto or one of float32, float16, float8 with backend onnx"),
        (
            ["page_format=int8", "backend=tensorrt", "device=cuda"],
            "auto or one of float16 with backend tensorrt",
        ),
    ],
)
def test_a_format_of_pages_that_the_backend_does_not_keep_is_refused(texts, limit):
    settings = Settings.read([f"token2wav.{text}" for text in texts])
    with pytest.raises(InvalidInput, match=rf"token2wav.page_format: .* is not accepted; {limit}"):
        settings.resolved(GPU if "device=cuda" in texts else CPU)


def test_list_in_a_settings_file_is_several_devices(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('[token2wav]\ndevice = ["cuda:0", "cuda:3"]\n')
    settings = Settings.read(environment={"COSYVOICE_SETTINGS": str(path)})
    assert settings.token2wav.devices == ("cuda:0", "cuda:3")


def test_resolved_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Settings.read(["checkpoint_dir=here"]).resolved(CPU).cosyvoice2.checkpoint_dir == tmp_path / "here"


def test_offline_model_shares_the_streaming_models_section():
    settings = Settings()
    assert settings.for_model("cosyvoice2_offline") is settings.cosyvoice2
    with pytest.raises(InvalidInput, match="known are cosyvoice2, tensorrt_llm"):
        settings.for_model("server")


def test_plain_key_reaches_every_section_that_has_it():
    settings = Settings.read(["max_queue_size=7"])
    assert [settings.tensorrt_llm.max_queue_size, settings.token2wav.max_queue_size] == [7, 7]


def test_key_with_section_wins_over_plain_key_in_any_order():
    for assignments in (["threads=2", "token2wav.threads=5"], ["token2wav.threads=5", "threads=2"]):
        settings = Settings.read(assignments)
        assert (settings.token2wav.threads, settings.cosyvoice2.threads) == (5, 2)


def test_assignment_wins_over_environment_over_file_over_default(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('threads = 2\nlog_level = "debug"\n[token2wav]\nmax_batch = 3\node_steps = 5\n')
    environment = {"COSYVOICE_SETTINGS": str(file), "COSYVOICE_TOKEN2WAV__MAX_BATCH": "4", "HOME": "/x"}
    token2wav = Settings.read(["token2wav.ode_steps=6"], environment).token2wav
    assert (token2wav.threads, token2wav.log_level, token2wav.max_batch, token2wav.ode_steps) == (
        2,
        "debug",
        4,
        6,
    )


def test_toml_list_and_boolean_like_values_are_read(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('[server]\nentry_models = ["a", "b"]\nstart_timeout_s = 5\n')
    server = Settings.read(environment={"COSYVOICE_SETTINGS": str(file)}).server
    assert server.entry_models == ("a", "b")
    assert server.start_timeout_s == 5.0


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("token2wav.max_bach=3", r"token2wav\.max_bach: '3' .*did you mean max_batch\?"),
        ("max_bach=3", r"max_bach: '3' .*did you mean max_batch\?"),
        (
            "vocoder.max_batch=3",
            r"vocoder\.max_batch: '3' .*there is no section vocoder; known are cosyvoice2",
        ),
        ("token2wav.max_batch=0", r"token2wav\.max_batch: '0' .*a whole number from 1 to 1024"),
        ("token2wav.max_batch=two", r"token2wav\.max_batch: 'two' .*a whole number from 1 to 1024"),
        ("audio_tokenizer.max_batch=auto", r"audio_tokenizer\.max_batch: 'auto' "),
        ("token2wav.threads=-1", r"token2wav\.threads: '-1' .*a whole number from 1 to 256 or auto"),
        ("cosyvoice2.top_p=nan", r"cosyvoice2\.top_p: 'nan' .*a number from 0\.01 to 1"),
        ("device=gpu", r"device: 'gpu' .*cpu, cuda or cuda:N or auto"),
        ("token2wav.device=cpu,cuda", r"token2wav\.device: 'cpu,cuda' .*several of a kind with commas"),
        ("tensorrt_llm.device=cuda:0,cuda:1", r"tensorrt_llm\.device: 'cuda:0,cuda:1' "),
        ("engine=sglang", r"engine: 'sglang' .*one of torch, onnx, tensorrt_llm, vllm or auto"),
        ("hop_tokens=200", r"cosyvoice2\.hop_tokens: 200 .*at most max_hop_tokens, which is 100"),
        ("max_batch", r"setting: 'max_batch' .*KEY=VALUE"),
    ],
)
def test_wrong_setting_is_named_with_its_limit(assignment, message):
    with pytest.raises(InvalidInput, match=message):
        Settings.read([assignment])


def test_setting_of_an_earlier_version_is_refused_with_what_to_do():
    with pytest.raises(
        InvalidInput, match=r"front\.max_body_mib: '8' .*any more; it is front\.max_request_mib"
    ):
        Settings.read(environment={"COSYVOICE_FRONT__MAX_BODY_MIB": "8"})
    with pytest.raises(InvalidInput, match=r"max_contexts: '8' .*any more; leave it out, it is 32"):
        Settings.read(["max_contexts=8"])
    with pytest.raises(InvalidInput, match=r"tensorrt_llm\.idle_timeout_s: '8' .*any more; leave it out"):
        Settings.read(["tensorrt_llm.idle_timeout_s=8"])


def test_no_setting_has_the_name_of_a_removed_one():
    assert not {name for section in Settings().sections().values() for name in section.field_names()} & {
        *REMOVED
    }


def test_unknown_environment_variable_is_an_error():
    with pytest.raises(InvalidInput, match=r"treads: '2' .*did you mean threads\?"):
        Settings.read(environment={"COSYVOICE_TREADS": "2"})


def test_unreadable_settings_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"missing\.toml"):
        Settings.read(environment={"COSYVOICE_SETTINGS": str(tmp_path / "missing.toml")})


def test_parameters_with_unknown_or_missing_key_are_refused():
    texts = Token2WavSettings().placeholders()
    with pytest.raises(InvalidInput, match=r"token2wav\.ode_step: .*did you mean ode_steps\?"):
        Token2WavSettings.from_parameters(parameters(texts | {"ode_step": "3"}))
    del texts["ode_steps"]
    with pytest.raises(InvalidInput, match="ode_steps missing"):
        Token2WavSettings.from_parameters(parameters(texts))


def test_parameters_of_the_backend_are_not_settings():
    own = parameters(TensorrtLlmSettings().placeholders())
    backend = {"FORCE_CPU_ONLY_INPUT_TENSORS": {"string_value": "no"}}
    assert TensorrtLlmSettings.from_parameters(own | backend) == TensorrtLlmSettings()


def test_settings_made_in_code_are_checked_as_well():
    with pytest.raises(InvalidInput, match=r"server\.http_port: 80000 .*a whole number from 0 to 65535"):
        ServerSettings(http_port=80_000)
    with pytest.raises(InvalidInput, match=r"token2wav\.checkpoint_dir: 3 .*a path"):
        Token2WavSettings().replace(checkpoint_dir=3)
    with pytest.raises(InvalidInput, match=r"server\.htp_port: 1 .*did you mean http_port\?"):
        ServerSettings(htp_port=1)


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_only_true_and_false_switch(text):
    with pytest.raises(InvalidInput, match=r"token2wav\.cuda_graphs: .*true or false"):
        Settings.read([f"token2wav.cuda_graphs={text}"])
    assert Settings.read(["token2wav.cuda_graphs=False"]).token2wav.cuda_graphs is False


@pytest.mark.parametrize(
    "texts",
    [
        ["tensorrt_llm.kernels=fused", "tensorrt_llm.cuda_graphs=false"],
        ["tensorrt_llm.kernels=fused", "tensorrt_llm.engine=vllm"],
        ["token2wav.kernels=fused", "token2wav.cuda_graphs=false"],
        ["token2wav.kernels=fused", "token2wav.backend=tensorrt"],
    ],
)
def test_fused_kernels_need_the_graphs_that_they_are_captured_in(texts):
    section = texts[0].partition(".")[0]
    with pytest.raises(InvalidInput, match=rf"{section}\.kernels: 'fused' .*auto or plain, unless"):
        Settings.read(texts)
    assert Settings.read([*texts[1:], f"{section}.kernels=plain"])


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        ServerSettings().http_port = 1


def test_longest_text_of_the_settings_is_one_that_the_text_checks_take():
    with pytest.raises(InvalidInput, match=f"from 1 to {MAX_TARGET_CHARACTERS}"):
        Settings.read([f"max_text_characters={MAX_TARGET_CHARACTERS + 1}"])
    assert Settings.read([f"max_text_characters={MAX_TARGET_CHARACTERS}"])


@pytest.mark.parametrize(
    ("machine", "first_hop", "growth"),
    [(CPU, 18, 0.5), (GPU, 12, 2.0)],
    ids=["cpu", "gpu"],
)
def test_speech_begins_sooner_and_chunks_grow_faster_where_a_gpu_computes(machine, first_hop, growth):
    resolved = Settings().resolved(machine)
    assert resolved.cosyvoice2.first_hop_tokens == first_hop
    assert resolved.token2wav.hop_growth == growth


def test_a_first_chunk_that_is_given_stays():
    assert Settings.read(["first_hop_tokens=30"]).resolved(GPU).cosyvoice2.first_hop_tokens == 30
