"""What keeps torch from the GPU of a machine that has NVIDIA's driver, and what to do about it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cosyvoice_runtime.gpu import nvidia
from cosyvoice_runtime.gpu.nvidia import (
    TorchBuild,
    Version,
    driver_name,
    obstacle,
    obstacle_to_torch,
    torch_build,
)
from cosyvoice_runtime.settings import Machine
from nvidia_fake import fake_driver, fake_torch

CUDA_13, CUDA_12 = TorchBuild("2.13.0+cu130", (13, 0)), TorchBuild("2.13.0+cu126", (12, 6))
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 2025\nGCC\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """``machine(driver's CUDA, torch)`` is this one with these, and a GPU."""

    def prepare(
        cuda: Version | None, build: TorchBuild | None, nodes: tuple[str, ...] = ("nvidia0",)
    ) -> None:
        monkeypatch.setattr(nvidia, "cuda_of_driver", lambda: cuda)
        monkeypatch.setattr(nvidia, "torch_build", lambda: build)
        monkeypatch.setattr(nvidia, "KERNEL_MODULE", tmp_path / "version")
        monkeypatch.setattr(nvidia, "DEVICES", tmp_path)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        (tmp_path / "version").write_text(PROPRIETARY)
        for node in nodes:
            (tmp_path / node).touch()

    return prepare


def test_driver_of_an_older_cuda_is_named_with_what_to_do(machine):
    machine((12, 8), CUDA_13)
    found = obstacle()
    assert found is not None
    assert not found.chosen
    assert found.text == (
        "NVIDIA's driver 570.133.20 supports CUDA 12.8, torch 2.13.0+cu130 needs CUDA 13.0: install driver "
        "580 or newer, or the build of torch for CUDA 12.6 may do (docs/environment.md, GPUs)"
    )
    machine((11, 8), CUDA_13)
    assert obstacle().text.endswith("needs CUDA 13.0: install driver 580 or newer")
    machine((11, 8), CUDA_12)
    assert obstacle().text.endswith("needs CUDA 12.6: install driver 525 or newer")


@pytest.mark.parametrize(
    ("cuda", "build"),
    [((13, 0), CUDA_13), ((13, 3), CUDA_13), ((14, 0), CUDA_13), ((12, 0), CUDA_12), ((12, 8), CUDA_12)],
)
def test_driver_of_the_major_version_or_a_newer_one_is_no_obstacle(machine, cuda, build):
    machine(cuda, build)
    assert obstacle() is None


@pytest.mark.parametrize(
    ("cuda", "build", "nodes", "told", "chosen"),
    [
        ((12, 8), None, ("nvidia0",), "torch is not installed", True),
        (
            (13, 0),
            TorchBuild("2.13.0+cpu", None),
            ("nvidia0",),
            r"torch 2.13.0\+cpu is a build for CPUs",
            False,
        ),
        (None, CUDA_13, (), r"not its libcuda\.so\.1; a container is given GPUs by --gpus all", False),
    ],
)
def test_other_obstacles_are_named(machine, cuda, build, nodes, told, chosen):
    machine(cuda, build, nodes)
    found = obstacle()
    assert found is not None
    assert re.search(told, found.text)
    assert found.chosen == chosen


@pytest.mark.parametrize("value", ["", " ", "-1"])
def test_hidden_gpus_are_a_choice(machine, value):
    machine((13, 0), CUDA_13)
    found = obstacle({"CUDA_VISIBLE_DEVICES": value})
    assert found == (f"CUDA_VISIBLE_DEVICES={value} hides every GPU", True)
    assert obstacle({"CUDA_VISIBLE_DEVICES": "0"}) is None


def test_machine_without_a_driver_has_no_obstacle(machine, tmp_path):
    machine(None, None)
    (tmp_path / "version").unlink()
    assert obstacle() is None
    assert obstacle_to_torch() is None


@pytest.mark.parametrize(("text", "name"), [(PROPRIETARY, "570.133.20"), (OPEN, "580.95.05"), ("?", "")])
def test_drivers_name_is_read(machine, tmp_path, monkeypatch, text, name):
    machine((13, 0), CUDA_13)
    (tmp_path / "version").write_text(text)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_name() == name


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        *[((7, 5), True), ((8, 0), True), ((8, 9), True), ((9, 0), True), ((12, 1), True)],
        *[((6, 1), False), ((7, 0), False), ((11, 0), False), ((13, 0), False)],
    ],
)
def test_gpu_that_torch_has_no_code_for_is_an_obstacle(machine, monkeypatch, capability, runs):
    machine((13, 0), CUDA_13)
    told = {
        "is_available": lambda: True,
        "get_device_capability": lambda: capability,
        "get_arch_list": lambda: ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_120"],
        "get_device_name": lambda: "Tesla V100",
    }
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(**told))
    found = obstacle_to_torch()
    assert (found is None) == runs
    if found:
        assert found.text.startswith(
            f"Tesla V100 has compute capability {capability[0]}.{capability[1]}, torch "
        )


@pytest.mark.parametrize(
    ("node", "hint"),
    [
        ("nvidia0", ""),
        ("dxg", ""),
        ("nvidiactl", "; none is in {}: a container is given GPUs by --gpus all"),
    ],
)
def test_torch_itself_has_the_last_word(machine, monkeypatch, tmp_path, node, hint):
    machine((13, 0), CUDA_13, (node,))

    def init() -> None:
        raise RuntimeError("CUDA unknown error\nmore")

    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_available=lambda: False, init=init))
    told = f"torch {torch.__version__} finds no GPU (CUDA unknown error){hint.format(tmp_path)}"
    assert obstacle_to_torch().text == told


def test_torch_that_is_broken_is_an_obstacle(machine, monkeypatch):
    machine((13, 0), CUDA_13)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert obstacle_to_torch().text.startswith("torch can't be imported (")
    assert not Machine.here().gpu


def test_gpu_that_torch_finds_needs_no_node(machine, monkeypatch):
    """A sandbox may name its devices in another way."""
    machine((13, 0), CUDA_13, ())
    told = {"is_available": lambda: True, "get_device_capability": lambda: (9, 0), "get_arch_list": list}
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(**told))
    assert obstacle_to_torch() is None


def test_installed_torch_is_read_without_importing_it():
    cuda = tuple(map(int, torch.version.cuda.split("."))) if torch.version.cuda else None
    assert torch_build() == (torch.__version__, cuda)


@pytest.mark.parametrize(
    ("cuda", "torch_cuda", "told"),
    [
        ((12, 8), "13.0", "NVIDIA's driver 570.133.20 supports CUDA 12.8, torch 2.13.0 needs CUDA 13.0"),
        ((13, 0), None, "torch 2.13.0 is a build for CPUs"),
        ((13, 0), "13.0", "torch 2.13.0 finds no GPU (No CUDA GPUs are available)"),
    ],
)
def test_a_real_library_is_asked(tmp_path, cuda, torch_cuda, told):
    path = fake_torch(tmp_path / "torch", cuda=torch_cuda)
    variables = fake_driver(tmp_path / "driver", cuda) | {"PYTHONPATH": str(path)}
    command = [sys.executable, "-m", "cosyvoice_runtime.gpu.nvidia"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | variables)
    assert json.loads(answer.stdout)["text"].startswith(told)
