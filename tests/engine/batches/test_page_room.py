"""Memory for pages: a share of the device's, and never what others hold."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cosyvoice_runtime.engine.runtimes import runtime, torch_runtime
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import work_bytes

GIB = 2**30
GPU = torch.device("cuda:0")


def gpu(monkeypatch: pytest.MonkeyPatch, free: float, total: float) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (int(free * GIB), int(total * GIB)))


@pytest.mark.parametrize(
    ("free", "total", "reserve", "room"),
    [
        (139, 141, 7, 0.8 * 141),
        (78, 80, 7, 0.8 * 80),
        (78, 80, 20, 80 - 20 - 2 - 6),
        (22.5, 24, 7, 24 - 7 - 2 - 6),  # the speech LM will load after this
        (15.5, 24, 7, 24 - 7 - 2 - 6),  # it has loaded before
        (13, 24, 7, 13 - 6),  # and somebody else
        (5, 24, 7, 0),
    ],
)
def test_gpu_gives_a_share_of_its_memory_unless_others_need_it(
    monkeypatch: pytest.MonkeyPatch, free: float, total: float, reserve: float, room: float
) -> None:
    gpu(monkeypatch, free, total)
    assert torch_runtime.room(GPU, 0.8, reserve) / GIB == pytest.approx(room, abs=1e-6)


def test_a_small_gpu_keeps_pages_rather_than_graphs_of_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(device: torch.device, obstacle: str | None = None, **settings: object) -> int:
        monkeypatch.setattr(torch_runtime, "solver_obstacle", lambda *_: obstacle)
        flow = SimpleNamespace(
            device=device,
            dtype=torch.float16,
            config=SimpleNamespace(blockwise=None),
            solver=SimpleNamespace(name="euler"),
        )
        given = Token2WavSettings(device="cuda", backend="torch", **settings)
        return torch_runtime.batch_rows(flow, given)

    gpu(monkeypatch, 22, 24)
    assert rows(GPU) == 8
    assert rows(GPU, max_batch=4) == 4
    gpu(monkeypatch, 78, 80)
    assert rows(GPU) == 16
    assert rows(GPU, max_batch=32) == 32
    for plain in ({"obstacle": "no fused kernels"}, {"kernels": "plain"}, {"cuda_graphs": False}):
        assert rows(GPU, max_batch=32, **plain) == 16
    assert rows(torch.device("cpu"), max_batch=32) == 32


def test_larger_batches_leave_fewer_pages() -> None:
    room = [work_bytes(rows) for rows in (1, 8, 16, 32)]
    assert room == sorted(room)
    assert room[1] < room[2] < room[3]
    assert work_bytes(16, divisions=2) == 2 * room[2]


def test_crowded_gpu_is_told_with_what_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu(monkeypatch, 16.5, 24)
    torch_runtime.room(GPU, 0.8, 7)
    assert not caplog.records
    gpu(monkeypatch, 13, 24)
    torch_runtime.room(GPU, 0.8, 7)
    [record] = caplog.records
    assert "13.0 of the 24.0 GiB of cuda:0 are free" in record.message


def test_container_counts_as_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    limit = tmp_path / "runtime.max"
    monkeypatch.setattr(runtime, "CGROUP_LIMIT", limit)
    limit.write_text(f"{2 * GIB}\n")
    assert torch_runtime.room(torch.device("cpu"), 0.5) == GIB
    limit.write_text("max\n")
    assert torch_runtime.room(torch.device("cpu"), 0.5) > 0
