"""The GPUs of a machine, as its driver lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.gpu.nvidia import VisibleGpu, gpus_in, visible_gpus

TWO = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-4fa6e5f0-1111-2222-3333-444455556666)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-9d0c7c00-1111-2222-3333-444455556666)
"""
DIVIDED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-4fa6e5f0-1111-2222-3333-444455556666)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 3g.20gb     Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-9d0c7c00-1111-2222-3333-444455556666)
"""


def test_each_gpu_has_its_number_and_its_uuid():
    first, second = gpus_in(TWO)
    assert first == VisibleGpu("0", "GPU-4fa6e5f0-1111-2222-3333-444455556666")
    assert second.number == "1"


def test_divided_gpu_stands_for_its_parts():
    assert [(gpu.number, gpu.uuid[:7]) for gpu in gpus_in(DIVIDED)] == [
        ("", "MIG-c73"),
        ("", "MIG-a28"),
        ("1", "GPU-9d0"),
    ]


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("3,1", ["3", "1"]),
        ("GPU-4fa6e5f0", ["GPU-4fa6e5f0"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
        ("0,,1", ["0"]),
        ("NoDevFiles", []),
    ],
)
def test_variable_of_cuda_says_what_a_process_may_use(variable, seen):
    assert [gpu.uuid for gpu in visible_gpus({"CUDA_VISIBLE_DEVICES": variable})] == seen


@pytest.mark.parametrize(("code", "found"), [(0, 2), (9, 0)])
def test_driver_is_asked_by_its_own_command(tmp_path: Path, monkeypatch, code, found):
    command = tmp_path / "nvidia-smi"
    command.write_text(f'#!/bin/sh\n[ "$1" = -L ] && cat <<"END"\n{TWO}END\nexit {code}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert len(visible_gpus({})) == found


def test_machine_without_the_command_has_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus({}) == []
