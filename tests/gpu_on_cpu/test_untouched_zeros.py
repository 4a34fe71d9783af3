"""Zeros that take memory when they are written."""

from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.gpu.transfer import untouched_zeros
from resident import resident_mib

MIB = 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(3, 5), (1,), (2, 0, 4)])
def test_same_as_zeros_of_torch(shape, dtype):
    found = untouched_zeros(*shape, device="cpu", dtype=dtype)
    expected = torch.zeros(shape, dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found, expected)
    found += 1
    assert torch.equal(found, expected + 1)


def test_memory_is_taken_where_it_is_written():
    before = resident_mib()
    zeros = untouched_zeros(512, MIB // 4, device="cpu", dtype=torch.float32)
    untouched = resident_mib() - before
    zeros[:128] = 1
    assert untouched < 64
    assert 120 < resident_mib() - before < 256
