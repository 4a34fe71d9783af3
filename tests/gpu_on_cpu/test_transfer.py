"""What is kept for transfers, with stand-ins for two GPUs: their memory is the host's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosyvoice_runtime.gpu import transfer
from cosyvoice_runtime.gpu.transfer import LANDED_BYTES, MOST_LANDED_BYTES, STAGES, Fetch, moved


class DeviceEvent:
    """Belongs to the device that it is first recorded on, as torch's do."""

    def __init__(self) -> None:
        self.device: int | None = None
        self.waits = 0

    def record(self, stream: int) -> None:
        assert self.device in (None, stream)
        self.device = stream

    def query(self) -> bool:
        return self.device is None

    def synchronize(self) -> None:
        self.waits += 1


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    place = "cuda:0"

    @property
    def device(self) -> torch.device:
        return torch.device(self.place)


@pytest.fixture(autouse=True)
def gpus(monkeypatch) -> None:
    empty = torch.empty

    def host_empty(*size, pin_memory=False, device=None, **options):
        tensor = empty(*size, **options)
        return tensor if device is None else on(device, tensor)

    monkeypatch.setattr(torch, "empty", host_empty)
    monkeypatch.setattr(torch.cuda, "Event", DeviceEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: device.index)
    monkeypatch.setattr(transfer, "_threads", transfer._Threads())
    transfer._landings.clear()


def on(place: torch.device | str, tensor: torch.Tensor) -> OnGpu:
    there = tensor.as_subclass(OnGpu)
    there.place = str(place)
    return there


def test_what_has_arrived_from_one_gpu_leaves_no_memory_for_another():
    for number in range(6):
        assert Fetch(on(f"cuda:{number % 2}", torch.tensor([number]))).array().tolist() == [number]
    assert [len(free) for free in transfer._landings.values()] == [1, 1]


def test_memory_that_values_arrived_in_is_free_when_they_are_taken():
    first = Fetch(on("cuda:0", torch.tensor([1, 2])))
    second = Fetch(on("cuda:0", torch.tensor([3, 4])))
    assert first.array().tolist() == first.array().tolist() == [1, 2]
    third = Fetch(on("cuda:0", torch.tensor([5, 6])))
    assert (second.array().tolist(), third.array().tolist()) == ([3, 4], [5, 6])
    assert len(transfer._landings[torch.device("cuda:0"), LANDED_BYTES]) == 2


def test_large_values_have_memory_of_their_own():
    values = torch.arange(MOST_LANDED_BYTES // 8 + 1)
    assert np.array_equal(Fetch(on("cuda:0", values)).array(), values.numpy())
    assert not transfer._landings


def test_memory_is_kept_for_values_of_another_kind_and_about_the_same_size():
    for values in (
        torch.arange(LANDED_BYTES),
        torch.arange(7000.0),
        torch.ones(3, 1111, dtype=torch.float64),
    ):
        assert np.array_equal(Fetch(on("cuda:0", values)).array(), values.numpy())
    assert [len(free) for free in transfer._landings.values()] == [1]


def test_memory_is_written_again_when_what_it_sent_has_left():
    device = torch.device("cuda:1")
    sent = [torch.tensor([number]) for number in range(STAGES + 3)]
    found = [moved(values, device) for values in sent]
    assert [each.tolist() for each in found] == [each.tolist() for each in sent]
    waits = [event.waits for event in transfer._threads.stage(device)._left]
    assert waits == [1] * 3 + [0] * (STAGES - 3)


def test_views_are_kept_and_given_up_when_there_are_many(monkeypatch):
    monkeypatch.setattr(transfer, "MOST_VIEWS", 3)
    device = torch.device("cuda:0")
    kinds = [torch.zeros(2, 3), torch.ones(6, dtype=torch.int64), torch.tensor([True, False]), torch.zeros(0)]
    for _ in range(2 * STAGES):
        for number, values in enumerate([*kinds, torch.full((1, 1), 7.0), torch.arange(8)[::2]]):
            sent = (values + number).to(values.dtype)
            assert torch.equal(moved(sent.clone(), device), sent)
            assert Fetch(on("cuda:0", sent)).array().tolist() == sent.tolist()
    pinned = transfer._threads.stage(device)._places[0]
    assert 0 < len(pinned._views) <= 3


def test_values_of_a_type_that_numpy_lacks_pass():
    values = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    assert torch.equal(moved(values, torch.device("cuda:0")), values)
    with pytest.raises(TypeError, match="bfloat16"):
        Fetch(on("cuda:0", values))


def test_memory_first_used_in_inference_mode_serves_others():
    with torch.inference_mode():
        fetched = Fetch(on("cuda:0", torch.tensor([1.0])))
        moved(torch.tensor([1.0]), torch.device("cuda:0"))
        assert fetched.array().tolist() == [1.0]
    assert Fetch(on("cuda:0", torch.tensor([2.0]))).array().tolist() == [2.0]
    for number in range(STAGES):
        assert moved(torch.tensor([float(number)]), torch.device("cuda:0")).tolist() == [number]
