"""What goes to a GPU and comes back is what was sent, however many transfers are under way and wherever."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from cosyvoice_runtime.gpu.transfer import (
    STAGED_BYTES,
    STAGES,
    Fetch,
    Parcel,
    move,
    moved,
    shared_with_host,
    wait_for,
)

pytestmark = pytest.mark.gpu

SIZES = (0, 1, 7, 1000, STAGED_BYTES // 8, STAGED_BYTES // 8 + 1)
ROUNDS = 3 * STAGES


@pytest.fixture
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")


def busy(gpu: torch.device) -> None:
    """Some milliseconds of work, behind which everything that follows in this stream waits."""
    torch.cuda._sleep(20_000_000)
    assert not torch.cuda.current_stream(gpu).query()


@pytest.mark.parametrize("size", SIZES)
def test_values_arrive_behind_a_device_that_is_busy(gpu: torch.device, size: int) -> None:
    sent = [torch.arange(size) + number for number in range(ROUNDS)]
    target = torch.zeros(size, dtype=torch.int64, device=gpu)
    busy(gpu)
    found = [moved(values.clone(), gpu) for values in sent]
    kept = []
    for values in sent:
        move(values, target)
        kept.append(Fetch(target))
    for values, there, back in zip(sent, found, kept, strict=True):
        assert torch.equal(there.cpu(), values)
        assert np.array_equal(back.array(), values.numpy())


def test_threads_do_not_meet(gpu: torch.device) -> None:
    errors: list[int] = []

    def send(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream(gpu)):
            busy(gpu)
            fetched = [Fetch(moved(torch.full((100,), 1000 * number + i), gpu)) for i in range(ROUNDS)]
            values = [int(each.array().sum()) for each in fetched]
        if values != [100 * (1000 * number + i) for i in range(ROUNDS)]:
            errors.append(number)

    threads = [threading.Thread(target=send, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_parcel_is_not_overwritten_before_it_has_left(gpu: torch.device) -> None:
    parcel, found = Parcel(gpu, [((3,), torch.int64), ((4, 50), torch.float32)], again=True), []
    busy(gpu)
    for number in range(10):
        numbers, values = parcel.host()
        numbers[:] = number
        values[:] = number + 1
        parcel.send(1, 3)
        found.append([tensor.clone() for tensor in parcel.tensors])
    for number, (numbers, values) in enumerate(found):
        assert numbers.eq(number).all()
        assert values[:3].eq(number + 1).all()
        assert values[3].eq(0).all()


def test_devices_do_not_share_what_arrives_there() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("two GPUs")
    for number in range(6):
        device = torch.device("cuda", number % 2)
        assert int(Fetch(moved(torch.tensor([number]), device)).array()) == number


def test_what_a_device_writes_to_shared_memory_is_on_the_host_behind_an_event(gpu: torch.device) -> None:
    values, array = shared_with_host((3, 5), torch.float16, gpu)
    assert values.is_cuda
    assert not array.any()
    done = torch.cuda.Event()
    for number in range(1, ROUNDS):
        busy(gpu)
        torch.mul(torch.ones(3, 5, device=gpu), number, out=values)
        values[1, 2] = 0
        done.record()
        wait_for(done)
        assert array[1, 2] == 0
        assert (np.delete(array.flatten(), 7) == number).all()
