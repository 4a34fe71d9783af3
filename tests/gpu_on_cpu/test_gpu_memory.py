"""A server that may use a part of a GPU's memory sees no more."""

from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.gpu import memory

GIB = 2**30
GPU = torch.device("cuda", 0)


@pytest.fixture
def shares(monkeypatch):
    """The shares of its memory that a GPU of 80 GiB, of which 10 are taken, has been limited to."""
    found = []
    monkeypatch.setattr(memory, "_limits", {})
    properties = type("Properties", (), {"total_memory": 80 * GIB})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (70 * GIB, 80 * GIB))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: found.append((share, device))
    )
    return found


def test_all_of_it_without_a_limit(shares):
    assert memory.free_and_total(GPU) == (70 * GIB, 80 * GIB)
    assert shares == []


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_no_more_than_the_limit(shares, device):
    memory.limit_memory(device, 24.0)
    assert memory.free_and_total(GPU) == (14 * GIB, 24 * GIB)
    assert shares == [(0.3, GPU)]


def test_nothing_is_free_where_more_is_taken(shares):
    memory.limit_memory("cuda", 8.0)
    assert memory.free_and_total(GPU) == (0, 8 * GIB)
    assert len(shares) == 1


def test_a_limit_beyond_the_gpu_is_none(shares):
    memory.limit_memory("cuda", 100.0)
    assert memory.free_and_total(GPU) == (70 * GIB, 80 * GIB)
    assert shares == []
