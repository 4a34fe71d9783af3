"""Networks on a real GPU, with and without CUDA graphs: ``pytest -m gpu``.

Everything is float32 without TF32: what differs beyond rounding is a fault of a graph, its padding or its
buffers. Without a GPU all tests are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from making import make_checkpoint

FREE_BYTES = {"tiny": 2 * 2**30, "full": 24 * 2**30}
"""GPU memory for both copies of the networks, their graphs and caches."""


@pytest.fixture(
    scope="session",
    params=[("tiny", "cosyvoice2"), ("full", "cosyvoice2"), ("tiny", "cosyvoice3"), ("full", "cosyvoice3")],
    ids=lambda param: "-".join(param),
)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random weights, of each size that fits the GPU."""
    size, family = request.param
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    free, _ = torch.cuda.mem_get_info()
    if free < FREE_BYTES[size]:
        pytest.skip(f"{size}: only {free / 2**30:.0f} GiB of GPU memory are free")
    return make_checkpoint(tmp_path_factory.mktemp("gpu") / size, size, seed=0, family=family)


@pytest.fixture(autouse=True, scope="session")
def _exact() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[torch.cuda.CUDAGraph]:
    """Every graph that has been replayed since the test began."""
    seen: list[torch.cuda.CUDAGraph] = []
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        seen.append(graph)
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    return seen
