"""What holds while a CUDA graph is captured, whatever captures it."""

from __future__ import annotations

import gc

import pytest

from cosyvoice_runtime.gpu.cuda_graphs import uncollected


class Cycle:
    """Freed by the collector alone."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Cycle.freed += 1


def test_cycles_are_freed_only_after_a_capture():
    """An old graph in one of them would be freed while another is captured, which CUDA does not allow."""
    gc.collect()
    before = Cycle.freed
    with uncollected():
        for _ in range(20 * gc.get_threshold()[0]):
            Cycle()
        assert Cycle.freed == before
    gc.collect()
    assert Cycle.freed > before


@pytest.mark.parametrize("collects", [True, False])
def test_collector_is_left_as_it_was(collects):
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), uncollected():
            1 / gc.isenabled()
        assert gc.isenabled() is collects
    finally:
        gc.enable()
