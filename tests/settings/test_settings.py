"""Defaults, the ways to give values, checks, and the round trip through a template's text."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import (
    Machine,
    ServerSettings,
    Settings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.removed import REMOVED
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS

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


def test_token2wav_runs_twice_on_a_cpu():
    resolved = Settings.read(["token2wav.device=cpu,cpu"]).resolved(GPU).token2wav
    assert (resolved.devices, resolved.dtype) == (("cpu", "cpu"), "float32")
    assert [each.device for each in resolved.on_each_device()] == ["cpu", "cpu"]
    assert Token2WavSettings.from_parameters(parameters(resolved.placeholders())) == resolved


@pytest.mark.parametrize("device", ["cuda,cuda", "cuda:1,cuda:2", "cuda,cpu"])
def test_token2wav_has_one_gpu(device):
    with pytest.raises(InvalidInput, match=rf"token2wav\.device: '{device}'.*cuda, cuda:N or auto"):
        Token2WavSettings(device=device)


@pytest.mark.parametrize("of_lm", ["", "cuda:1"])
def test_networks_on_two_gpus_are_refused(of_lm):
    given = [f"tensorrt_llm.device={of_lm}"] if of_lm else []
    with pytest.raises(InvalidInput, match=r"token2wav\.device: 'cuda:2'.*the GPU of the speech LM, cuda:"):
        Settings.read([*given, "token2wav.device=cuda:2"]).resolved(GPU)


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
    path.write_text('[token2wav]\ndevice = ["cpu", "cpu"]\n')
    settings = Settings.read(environment={"COSYVOICE_SETTINGS": str(path)})
    assert settings.token2wav.devices == ("cpu", "cpu")


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
        ("token2wav.device=cpu,cuda", r"token2wav\.device: 'cpu,cuda' .*also several with commas"),
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
