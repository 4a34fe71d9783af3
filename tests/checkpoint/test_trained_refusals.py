"""What training wrote and can't be right is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_forms import (
    State,
    distributed,
    load,
    original,
    prefixed,
    without,
)

from cosyvoice_runtime.checkpoint import verify_checkpoint
from cosyvoice_runtime.errors import CheckpointError


def changed(state: State, name: str = "speech_embedding.weight") -> State:
    other = deepcopy(state)
    other[name] = other[name] + 1
    return other


def adapted(state: State, layer: str = "base_layer") -> State:
    """A layer inside an adapter that is not merged."""
    name = "llm.model.model.layers.0.self_attn.q_proj"
    inside = {key.replace(name, f"{name}.{layer}"): tensor for key, tensor in state.items()}
    return {**inside, f"{name}.lora_A": torch.ones(2, 2), f"{name}.lora_B": torch.ones(2, 2)}


NAME = "llm.model.model.norm.weight"
REFUSED: dict[str, tuple[Callable[[State], Any], str]] = {
    "a network and its EMA": (
        lambda state: {"model": state, "ema": changed(state)},
        "refused: it holds networks that differ, behind 'model.' and 'ema.'; keep the one",
    ),
    "ema_pytorch with both": (
        lambda state: {**prefixed("online_model.")(state), **prefixed("ema_model.")(changed(state))},
        "refused: it holds networks that differ, behind 'online_model.' and 'ema_model.'",
    ),
    "two in one dictionary": (
        lambda state: {**state, f"module.{NAME}": state[NAME] + 1},
        f"refused: tensor {NAME} is there twice and differs",
    ),
    "adapter of peft": (adapted, "refused: it holds an adapter beside the layers that it changes; merge it"),
    "adapter alone": (
        lambda state: {f"{name.removesuffix('.weight')}.lora_A.weight": torch.ones(1) for name in state},
        "refused: it holds an adapter and no llm; merge it",
    ),
    "adapter of one's own": (lambda state: adapted(state, "base"), "refused: it holds an adapter beside"),
    "missing": (lambda state: {"model": without(state, NAME), "epoch": 1}, f"tensor {NAME} is missing"),
    "shape": (
        lambda state: {"state_dict": {**state, NAME: torch.zeros(3)}},
        f"tensor {NAME} has shape (3,), expected (64,)",
    ),
    "another layer": (
        lambda state: prefixed("module.")(
            {**state, "llm.model.model.layers.9.mlp.up_proj.weight": torch.ones(1)}
        ),
        "tensor llm.model.model.layers.9.mlp.up_proj.weight is unknown to this architecture",
    ),
    "a norm more": (
        lambda state: {**state, "llm.model.model.layers.0.self_attn.q_norm.weight": torch.ones(1)},
        "q_norm.weight is unknown to this architecture",
    ),
    "whole numbers": (
        lambda state: {**state, NAME: torch.zeros(64, dtype=torch.int8)},
        f"tensor {NAME} has dtype int8, expected float32, float16 or bfloat16",
    ),
    "divided by ZeRO 3": (
        lambda state: {"module": {**state, NAME: torch.zeros(0)}},
        f"refused: tensor {NAME} is empty, as in one of several files of a divided network",
    ),
    "sparse": (
        lambda state: {**state, NAME: torch.zeros(64).to_sparse()},
        f"refused: tensor {NAME} is of torch._utils._rebuild_sparse_tensor, which is not read",
    ),
    "parts of a mesh": (distributed, "is of torch._tensor._rebuild_from_type_v2, which is not read"),
    "a precision that is not read": (
        lambda state: {name: tensor.to(torch.float8_e4m3fn) for name, tensor in state.items()},
        "is of torch._utils._rebuild_tensor_v3, which is not read",
    ),
    "no numbers": (
        lambda state: {name: tensor.to("meta") for name, tensor in state.items()},
        "is of torch._utils._rebuild_meta_tensor_no_storage, which is not read",
    ),
    "Hugging Face's names": (
        lambda state: {
            name.removeprefix("llm.model."): tensor for name, tensor in state.items() if "layers" in name
        },
        "refused: none of its",
    ),
    "an optimizer alone": (
        lambda state: {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1.0}]},
        "refused: none of its 1 tensors is one of llm, but 'state'",
    ),
    "a list": (lambda state: [state], "refused: expected tensors by name, found list"),
    "counters alone": (
        lambda _: {"epoch": 1, "step": 2},
        "refused: it holds no tensors by name, but 'epoch', 'step'",
    ),
    "nothing": (lambda _: {}, "refused: it holds no tensors by name, but nothing"),
    "a module": (
        lambda state: nn.Linear(2, 2),
        "refused: it is an object of torch.nn.modules.linear.Linear, which is not looked up",
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_cannot_be_right_is_refused_by_name(checkpoint: Path, form: str) -> None:
    write, told = REFUSED[form]
    path = checkpoint / "llm.pt"
    torch.save(write(original(checkpoint, "llm")), path)
    with pytest.raises(CheckpointError, match=re.escape(told)) as error:
        load(checkpoint, "llm")
    assert str(error.value).startswith(f"{path}: ")
    assert any(told in problem for problem in verify_checkpoint(checkpoint))


def test_network_of_another_part_is_named(checkpoint: Path) -> None:
    (checkpoint / "flow.pt").rename(checkpoint / "llm.pt")
    with pytest.raises(
        CheckpointError, match=r"llm\.pt: refused: none of its \d+ tensors is one of llm, but"
    ):
        load(checkpoint, "llm")
