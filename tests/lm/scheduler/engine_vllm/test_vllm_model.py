"""The model class and the plugin, and whether the stand-in is like the release."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomllib
import torch
from coded_vllm import ExportedLM
from safetensors.torch import load_file

from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.engines.vllm import ARCHITECTURE, VLLM_CONTAINERS, register
from cosyvoice_runtime.lm.engines.vllm.export import PromptTables, output_rows
from cosyvoice_runtime.preflight.vllm import CONTAINERS, USED
from vllm_fake import network, parameters, processors
from vllm_fake.engine import BaseEngine, CompletionOutput, Executor
from vllm_fake.install import FakeVllm
from vllm_fake.signatures import RELEASES, SIGNATURES, described, recorded

ROOT = Path(__file__).resolve().parents[4]
LIKE_THE_RELEASE = {
    "EngineArgs.create_engine_config": parameters.EngineArgs.create_engine_config,
    "LLMEngine.add_request": BaseEngine.add_request,
    "LLMEngine.step": BaseEngine.step,
    "LLMEngine.abort_request": BaseEngine.abort_request,
    "LLMEngine": BaseEngine,
    "Executor.get_class": Executor.get_class,
    "embeds_input": parameters.embeds_input,
    "BatchUpdate": processors.BatchUpdate,
    "LogitsProcessor": processors.LogitsProcessor.__init__,
    "LogitsProcessor.apply": processors.LogitsProcessor.apply,
    "LogitsProcessor.update_state": processors.LogitsProcessor.update_state,
    "LogitsProcessor.validate_params": processors.LogitsProcessor.validate_params,
    "LogitsProcessor.is_argmax_invariant": processors.LogitsProcessor.is_argmax_invariant,
    "ParallelLMHead": network.ParallelLMHead,
    "Qwen2ForCausalLM": network.Qwen2ForCausalLM,
    "Qwen2ForCausalLM.compute_logits": network.Qwen2ForCausalLM.compute_logits,
    "model_logits_processor.forward": network.ModelLogitsProcessor.forward,
    "maybe_prefix": network.maybe_prefix,
    "CompletionOutput": CompletionOutput,
    "ModelRegistry.register_model": FakeVllm().register_model,
    "ModelRegistry.get_supported_archs": FakeVllm().get_supported_archs,
    "current_stream": FakeVllm().current_stream,
}


@pytest.mark.parametrize("name", LIKE_THE_RELEASE)
def test_stand_in_has_the_signature_of_the_release(name):
    assert described(LIKE_THE_RELEASE[name]) == SIGNATURES[name]


@pytest.mark.parametrize("release", RELEASES[1:])
def test_later_release_adds_only_what_may_be_left_out_and_removes_nothing_in_use(release):
    for name, parameters_before in SIGNATURES.items():
        parameters_now = recorded(name, release)
        added = [text for text in parameters_now if text not in parameters_before]
        assert all(text.endswith("=") for text in added), name
        kept = [text for text in parameters_before if text in parameters_now]
        assert name in ("EngineArgs", "SamplingParams") or kept == parameters_before, name
        used = [symbol.parameters.split() for symbol in USED if symbol.name == name]
        assert {text.strip("*=") for text in parameters_now} >= {each for names in used for each in names}


def test_every_release_that_is_accepted_is_recorded():
    assert set(RELEASES) == VLLM_CONTAINERS.keys() == CONTAINERS.keys()


@pytest.mark.parametrize("name", ["SamplingParams", "EngineArgs"])
def test_stand_in_takes_no_parameter_that_the_release_does_not_have(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'early_stopping'"):
        getattr(parameters, name)(early_stopping=True)


def test_plugin_registers_the_model_once_and_by_name(vllm):
    register()
    register()
    assert vllm.registry == {ARCHITECTURE: "cosyvoice_runtime.lm.engines.vllm.model:SpeechQwen2"}


def test_plugin_is_an_entry_point_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["vllm.general_plugins"] == {
        "cosyvoice2": f"{register.__module__}:{register.__name__}"
    }


def test_head_has_the_exported_shape_and_adds_the_exported_bias(vllm, vllm_exports):
    from cosyvoice_runtime.lm.engines.vllm.model import SpeechQwen2

    directory = vllm_exports["float32"]
    content = json.loads((directory / "config.json").read_text())
    model_config = SimpleNamespace(hf_config=SimpleNamespace(**content))
    model = SpeechQwen2(vllm_config=SimpleNamespace(model_config=model_config), prefix="")
    tensors = load_file(directory / "model.safetensors")
    model.lm_head.load_state_dict({name: tensors[f"lm_head.{name}"] for name in ("weight", "bias")})
    exported, tables = ExportedLM(directory), PromptTables.read(directory)
    embeds = tables.embed(Prompt([3, 4]).segments())
    with torch.inference_mode():
        hidden = exported.network(inputs_embeds=embeds[None]).last_hidden_state[0]
        logits = model.compute_logits(hidden)
    assert logits.shape == (4, output_rows_of(content))
    torch.testing.assert_close(logits, exported.logits(embeds, []), rtol=1e-6, atol=1e-5)
    assert model.lm_head.prefix == "lm_head"


def output_rows_of(content: dict) -> int:
    from cosyvoice_runtime.checkpoint.lm_rows import read_recorded

    return output_rows(read_recorded(content["cosyvoice2"]))
