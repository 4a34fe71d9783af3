"""Weights as training leaves them: every reader takes the network, and the log says what it left."""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file, save_model
from torch import nn
from torch.distributed.tensor import DeviceMesh, Replicate, distribute_tensor
from torch.optim.swa_utils import AveragedModel

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint import Layout, load_config, verify_checkpoint
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.layout import PARTS, Part
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.source import Source
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from making import make_checkpoint

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


@pytest.mark.parametrize("form", FORMS)
def test_network_is_found_in_what_training_wrote(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    monkeypatch.chdir(checkpoint)
    write, told = FORMS[form]
    for part in PARTS:
        expected = original(checkpoint, part)
        torch.save(write(expected), checkpoint / f"{part}.pt")
        caplog.clear()
        assert_equal(load(checkpoint, part), expected)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == bool(told)
        assert told in "".join(lines)
    assert verify_checkpoint(checkpoint) == []
    assert not Path("proof").exists()


@pytest.mark.parametrize("family", ["cosyvoice2", "cosyvoice3", "cosyvoice300m"])
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_every_network_of_every_family_is_found(tmp_path: Path, family: str, suffix: str) -> None:
    directory = make_checkpoint(tmp_path / "made", "tiny", seed=3, family=family)
    (directory / "SHA256SUMS").unlink()
    for part in PARTS:
        expected = original(directory, part)
        content = prefixed("module._orig_mod.")({name: tensor.clone() for name, tensor in expected.items()})
        content["step"] = torch.tensor(5)
        (directory / f"{part}.pt").unlink()
        path = directory / f"{part}.{suffix}"
        torch.save(content, path) if suffix == "pt" else save_file(content, path)
        assert_equal(load(directory, part), expected)
    assert verify_checkpoint(directory) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_of_training_is_read(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, dtype: torch.dtype
) -> None:
    expected = {name: tensor.to(dtype) for name, tensor in original(checkpoint, "flow").items()}
    torch.save(expected, checkpoint / "flow.pt")
    read = torch.float32 if dtype == torch.float64 else dtype
    assert_equal(load(checkpoint, "flow"), {name: tensor.to(read) for name, tensor in expected.items()})
    assert ("float64 is read as float32" in caplog.text) == (dtype == torch.float64)


def test_views_of_one_storage_and_transposed_tensors_are_read(checkpoint: Path) -> None:
    expected = original(checkpoint, "hift")
    whole = torch.cat([tensor.flatten() for tensor in expected.values()])
    places = torch.tensor([0, *(tensor.numel() for tensor in expected.values())]).cumsum(0).tolist()
    views = {
        name: whole[place : place + tensor.numel()].view(tensor.shape)
        for (name, tensor), place in zip(expected.items(), places, strict=False)
    }
    torch.save(views, checkpoint / "hift.pt")
    assert_equal(load(checkpoint, "hift"), expected)
    torch.save(
        {name: tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor for name, tensor in expected.items()},
        checkpoint / "hift.pt",
    )
    assert_equal(load(checkpoint, "hift"), expected)


def changed(state: State, name: str = "speech_embedding.weight") -> State:
    other = deepcopy(state)
    other[name] = other[name] + 1
    return other


def adapted(state: State, layer: str = "base_layer") -> State:
    """A layer inside an adapter that is not merged."""
    name = "llm.model.model.layers.0.self_attn.q_proj"
    inside = {key.replace(name, f"{name}.{layer}"): tensor for key, tensor in state.items()}
    return {**inside, f"{name}.lora_A": torch.ones(2, 2), f"{name}.lora_B": torch.ones(2, 2)}


def without(state: State, name: str) -> State:
    return {key: tensor for key, tensor in state.items() if key != name}


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


@pytest.mark.parametrize("name", [TEXT_HEAD, TEXT_TABLE])
def test_one_of_the_tied_tensors_may_be_missing_behind_any_beginning(checkpoint: Path, name: str) -> None:
    expected = original(checkpoint, "llm")
    torch.save({"ema": prefixed("module.")(without(expected, name))}, checkpoint / "llm.pt")
    assert_equal(load(checkpoint, "llm"), expected)


def test_safetensors_without_names_of_shared_memory_is_read(checkpoint: Path) -> None:
    """``save_model``, which Hugging Face's trainers use, keeps one name of each tensor, here the head's."""
    expected = original(checkpoint, "llm")
    (checkpoint / "llm.pt").unlink()
    network = Tree(expected)
    network.get_submodule("llm.model.lm_head").weight = network.get_parameter(TEXT_TABLE)
    save_model(network, str(checkpoint / "llm.safetensors"))
    with safe_open(checkpoint / "llm.safetensors", "pt") as file:
        assert TEXT_TABLE not in file.keys()  # noqa: SIM118 - no mapping
    assert_equal(load(checkpoint, "llm"), expected)


def test_safetensors_of_a_strange_dtype_beside_the_network_is_skipped(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = original(checkpoint, "hift")
    (checkpoint / "hift.pt").unlink()
    extra = {"seen": torch.ones(2, dtype=torch.uint16), "step": torch.tensor(1)}
    save_file({**expected, **extra}, checkpoint / "hift.safetensors")
    assert_equal(load(checkpoint, "hift"), expected)
    assert "skipped 'step', 'seen' (dtype U16)" in caplog.text


def test_hostile_names_cost_no_more_than_they_are_long(checkpoint: Path) -> None:
    """Neither a name of dots alone nor dictionaries in dictionaries are looked through again and again."""
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"." * 400: deep, "x": deep}
    expected = original(checkpoint, "flow")
    hostile = {"." * 10**6: torch.ones(1), "lora_" * 10**5: torch.ones(1)}
    torch.save({"state_dict": expected, "hostile": hostile, "deep": deep}, checkpoint / "flow.pt")
    assert_equal(load(checkpoint, "flow"), expected)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_trained_checkpoint_speaks_as_its_plain_one(checkpoint: Path, tmp_path: Path, runtime: str) -> None:
    """With either runtime; what ONNX Runtime runs was written from the trained files."""

    def spoken(exported: str) -> np.ndarray:
        synthesizer = Synthesizer.from_checkpoint(checkpoint, runtime=runtime, exported=tmp_path / exported)
        voice = synthesizer.voice(Audio(np.sin(np.arange(16_000) / 20).astype(np.float32), 16_000), "One.")
        request = SpeechRequest("One.", voice, seed=1, sampling=SamplingOptions(max_tokens=10))
        return np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])

    plain = spoken("plain")
    for part in PARTS:
        torch.save(with_optimizer(original(checkpoint, part)), checkpoint / f"{part}.pt")
    assert np.array_equal(spoken("trained"), plain)


def test_conversions_for_other_programs_read_trained_files(checkpoint: Path) -> None:
    expected = original(checkpoint, "llm")
    torch.save(deepspeed(expected), checkpoint / "llm.pt")
    assert_equal(Source.open(checkpoint).tensors(), expected)
