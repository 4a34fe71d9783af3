"""Forms in which training programs write a network."""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DeviceMesh, Replicate, distribute_tensor
from torch.optim.swa_utils import AveragedModel

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.layout import Part

State = dict[str, torch.Tensor]


class Malice:
    """Creates a file when unpickled."""

    def __init__(self, proof: str) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.proof}",)


class Tree(nn.Module):
    """A module whose parameters have the names of a state dict."""

    def __init__(self, state: State) -> None:
        super().__init__()
        for name, tensor in state.items():
            *path, last = name.split(".")
            module: nn.Module = self
            for step in path:
                if step not in module._modules:
                    module.add_module(step, nn.Module())
                module = module.get_submodule(step)
            module.register_parameter(
                last, nn.Parameter(tensor.clone(), requires_grad=tensor.is_floating_point())
            )

    def forward(self) -> torch.Tensor:
        return torch.stack([parameter.float().mean() for parameter in self.parameters()]).sum()


def prefixed(prefix: str) -> Callable[[State], dict[str, Any]]:
    return lambda state: {prefix + name: tensor for name, tensor in state.items()}


def under(*keys: str, beside: dict[str, Any] | None = None) -> Callable[[State], dict[str, Any]]:
    def wrapped(state: State) -> dict[str, Any]:
        content: Any = state
        for key in keys[::-1]:
            content = {key: content}
        return {**content, **(beside or {})}

    return wrapped


def with_optimizer(state: State) -> dict[str, Any]:
    """A step of a real optimizer and scheduler, and the random states of Lightning and others."""
    network = Tree(state)
    optimizer = torch.optim.AdamW(network.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    network().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return {
        "state_dict": state,
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "args": argparse.Namespace(lr=np.float64(1e-4), path=Path("exp"), dtype=torch.bfloat16),
        "random": {
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        },
        "losses": np.ones(3),
        "best": torch.tensor(0.5),
        "epoch": 3,
    }


def deepspeed(state: State) -> dict[str, Any]:
    """As its engine's save_checkpoint writes it, with what the trainer hands it beside."""
    return {
        "module": state,
        "buffer_names": [],
        "optimizer": None,
        "param_shapes": [{name: tensor.shape for name, tensor in state.items()}],
        "frozen_param_fragments": {},
        "lr_scheduler": {"last_epoch": 4},
        "sparse_tensor_module_names": set(),
        "global_steps": 7,
        "ds_config": {"train_batch_size": 4},
        "ds_version": "0.17.2",
        "loss_dict": {"loss": torch.tensor(2.0), "acc": torch.tensor(0.5)},
        "step": 7,
    }


def distributed(state: State) -> dict[str, Any]:
    """A mesh of one process, as FSDP leaves it where nobody gathers the parts."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        return {name: distribute_tensor(tensor, mesh, [Replicate()]) for name, tensor in state.items()}
    finally:
        torch.distributed.destroy_process_group()


def compiled_within(state: State) -> State:
    """``torch.compile`` of layers, and activation checkpoints within."""
    return {
        re.sub(r"(\.\d+\.)", r"\1_orig_mod._checkpoint_wrapped_module.", name, count=1): tensor
        for name, tensor in state.items()
    }


def averaged(state: State) -> dict[str, Any]:
    return AveragedModel(Tree(state)).state_dict()


FORMS: dict[str, tuple[Callable[[State], Any], str]] = {
    "epoch and step": (lambda state: {**state, "epoch": 3, "step": 1200}, "skipped 'epoch', 'step'"),
    "counters as tensors": (lambda state: {**state, "step": torch.tensor(7)}, "skipped 'step'"),
    "DDP": (prefixed("module."), ""),
    "compiled": (prefixed("_orig_mod."), ""),
    "DDP, compiled": (prefixed("module._orig_mod."), ""),
    "FSDP": (prefixed("_fsdp_wrapped_module."), ""),
    "layers compiled": (compiled_within, ""),
    "state_dict": (under("state_dict"), ""),
    "model": (under("model", beside={"iteration": 5}), "skipped 'iteration'"),
    "model_state_dict of DDP": (lambda state: {"model_state_dict": prefixed("module.")(state)}, ""),
    "Lightning": (
        lambda state: {"state_dict": prefixed("model.")(state), "pytorch-lightning_version": "2.5"},
        "skipped 'pytorch-lightning_version'",
    ),
    "DeepSpeed": (deepspeed, "'sparse_tensor_module_names' (__builtin__.set)"),
    "optimizer": (with_optimizer, "'args' (argparse.Namespace)"),
    "EMA": (under("ema", beside={"decay": 0.999}), "skipped 'decay'"),
    "EMA of ema_pytorch": (
        lambda state: {
            **prefixed("ema_model.")(state),
            "initted": torch.tensor(True),
            "step": torch.tensor(9),
        },
        "skipped 'initted', 'step'",
    ),
    "EMA equal to its network": (
        lambda state: {"model": state, "ema": {name: tensor.clone() for name, tensor in state.items()}},
        "skipped 'ema'",
    ),
    "averaged by torch": (averaged, "skipped 'n_averaged'"),
    "GAN": (
        lambda state: {**prefixed("generator.")(state), "discriminator.conv.weight": torch.ones(2, 2)},
        "skipped 'discriminator'",
    ),
    "parameters": (lambda state: dict(Tree(state).named_parameters()), ""),
    "buffers of older libraries": (
        lambda state: {**state, "llm.model.model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)},
        "skipped 'inv_freq'",
    ),
    "merged adapters": (
        lambda state: {**state, "llm.layers.0.q_proj.lora_A.default.weight": torch.ones(2, 2)},
        "skipped 'lora_A'; the weights are taken to have their adapters merged",
    ),
    "one tensor under two names": (
        lambda state: {**state, **{f"module.{name}": tensor for name, tensor in state.items()}},
        "",
    ),
    "shapes beside": (
        lambda state: {"shapes": {name: tensor.shape for name, tensor in state.items()}, "weights": state},
        "skipped 'shapes' (",
    ),
    "by modules": (
        lambda state: {
            name: {rest.partition(".")[2]: state[rest] for rest in state if rest.partition(".")[0] == name}
            for name in {key.partition(".")[0] for key in state}
        },
        "",
    ),
    "malice": (lambda state: {**state, "hook": Malice("proof")}, "skipped 'hook' (posix.system)"),
}
LOADED_BY_TORCH = ("compiled", "model", "EMA of ema_pytorch", "epoch and step", "merged adapters")


def original(directory: Path, part: Part) -> State:
    return torch.load(directory / f"{part}.pt", weights_only=True)


def load(directory: Path, part: Part) -> State:
    return load_tensors(Layout(directory), part, load_config(directory))


def assert_equal(actual: State, expected: State) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())


def without(state: State, name: str) -> State:
    return {key: tensor for key, tensor in state.items() if key != name}
