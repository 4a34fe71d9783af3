"""Published tensors and their checks."""

from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.lm.torch.network import SpeechLM

Tensors = dict[str, torch.Tensor]
NAME = "llm.model.model.layers.1.self_attn.k_proj.bias"


def test_missing_tensor_is_named(config: SpeechLMConfig, published: Tensors) -> None:
    del (tensors := dict(published))[NAME]
    with pytest.raises(CheckpointError, match=NAME):
        SpeechLM.from_tensors(config, tensors)


def test_unknown_tensor_is_named(config: SpeechLMConfig, published: Tensors) -> None:
    with pytest.raises(CheckpointError, match="surprise"):
        SpeechLM.from_tensors(config, {**published, "surprise": torch.zeros(1)})


def test_wrong_shape_is_named_with_both_shapes(config: SpeechLMConfig, published: Tensors) -> None:
    with pytest.raises(CheckpointError, match=rf"{NAME} has shape \(7,\), expected \(16,\)"):
        SpeechLM.from_tensors(config, {**published, NAME: torch.zeros(7)})


def test_text_head_of_the_backbone_is_optional_and_unused(config: SpeechLMConfig, published: Tensors) -> None:
    without = {name: tensor for name, tensor in published.items() if name != TEXT_HEAD}
    states = [SpeechLM.from_tensors(config, tensors).state_dict() for tensors in (published, without)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_fused_projection_stacks_its_parts(config: SpeechLMConfig, published: Tensors) -> None:
    fused = SpeechLM.own_tensors(config, published, torch.Tensor.float)["layers.2.attention.qkv.weight"]
    parts = [published[f"llm.model.model.layers.2.self_attn.{x}_proj.weight"] for x in "qkv"]
    assert torch.equal(fused, torch.cat(parts))


def test_every_other_published_value_is_used_once(config: SpeechLMConfig, published: Tensors) -> None:
    used = sum(
        tensor.numel() for tensor in SpeechLM.own_tensors(config, published, torch.Tensor.float).values()
    )
    assert used + published[TEXT_HEAD].numel() == sum(tensor.numel() for tensor in published.values())


def test_weights_need_no_gradient(lm: SpeechLM) -> None:
    assert not any(parameter.requires_grad for parameter in lm.parameters())
