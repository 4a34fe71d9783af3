"""Values of several kinds in one transfer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosyvoice_runtime.gpu import transfer
from cosyvoice_runtime.gpu.transfer import Parcel

KINDS = [((3,), torch.int64), ((5,), torch.float32), ((4, 6), torch.float32)]
CPU = torch.device("cpu")


class Left:
    """An event of a GPU that is always behind."""

    waits = 0

    def record(self, stream: object) -> None:
        assert stream is None
        self.query = lambda: False

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        Left.waits += 1


@pytest.fixture
def gpu(monkeypatch) -> None:
    """A stand-in whose memory is the host's."""
    zeros = torch.zeros
    monkeypatch.setattr(transfer, "on_gpu", lambda _: True)
    monkeypatch.setattr(torch, "zeros", lambda *size, pin_memory=False, **options: zeros(*size, **options))
    monkeypatch.setattr(torch.cuda, "Event", Left)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    monkeypatch.setattr(Left, "waits", 0)


def filled(parcel: Parcel, number: int) -> None:
    for values in parcel.host():
        values[:] = number


def sums(parcel: Parcel) -> list[float]:
    return [float(tensor.sum()) for tensor in parcel.tensors]


def test_kinds_keep_their_shapes_and_types():
    parcel = Parcel(CPU, KINDS, again=True)
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in parcel.tensors] == KINDS
    assert [array.dtype for array in parcel.host()] == [np.int64, np.float32, np.float32]
    filled(parcel, 2)
    parcel.send(3)
    assert sums(parcel) == [6, 10, 48]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("again", [True, False])
def test_what_is_left_out_stays(again, monkeypatch):
    monkeypatch.setattr(transfer, "move", lambda tensor, target: target.copy_(tensor))
    parcel = Parcel(CPU, KINDS, again)
    filled(parcel, 2)
    assert sums(parcel) == [0, 0, 0]
    parcel.send(2)
    assert sums(parcel) == [6, 10, 0]
    filled(parcel, 3)
    parcel.send(1)
    assert sums(parcel) == [9, 10, 0]
    filled(parcel, 4)
    parcel.send(2, 3)
    assert sums(parcel) == [12, 20, 72]


@pytest.mark.usefixtures("gpu")
def test_memory_is_written_again_when_what_it_sent_has_left():
    parcel = Parcel(CPU, KINDS, again=True)
    for number in range(4):
        filled(parcel, number)
        parcel.send(3)
    assert Left.waits == 2
