from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cosyvoice_runtime.checkpoint.safetensors_file import write_safetensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_file_is_read_by_the_safetensors_library(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"b.weight": torch.randn(3, 5), "a.bias": torch.randn(7), "empty": torch.zeros(0, 4)}
    schema = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    write_safetensors(tmp_path / "x.safetensors", schema, dtype, tensors.items())
    loaded = load_file(tmp_path / "x.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensor.to(dtype)) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    "tensors",
    [[], [("b", torch.zeros(2))], [("a", torch.zeros(3))], [("a", torch.zeros(2)), ("b", torch.zeros(2))]],
)
def test_tensors_other_than_announced_are_an_error(tmp_path: Path, tensors: list) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the words of zip for too few or too many)
        write_safetensors(tmp_path / "x.safetensors", {"a": (2,)}, torch.float32, tensors)
