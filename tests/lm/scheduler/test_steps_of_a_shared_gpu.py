"""Steps of the speech LM on a GPU that it shares with the flow."""

from __future__ import annotations

import threading
import time

import pytest
from coded_engine import (
    ENDLESS,
    TIMEOUT_S,
    CodedEngine,
    CollectingReader,
    close_gate,
    coded_request,
    coded_tokens,
    open_gate,
    submit,
    wait_for_step,
)

from cosyvoice_runtime.gpu.partitions.division import GpuDivision
from cosyvoice_runtime.gpu.partitions.partition import GpuParts
from cosyvoice_runtime.gpu.partitions.shared_gpu import GpuShifts, SharedGpu
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.scheduler import scheduler as scheduler_module


class Standing(SharedGpu):
    """A GPU on whose part for steps a first chunk is computed, until a test says that it is done."""

    stands_still = True

    def when_free(self, tell):
        self._tell = tell

    def end_chunk(self):
        self.stands_still = False
        self._tell()


def stand(engine: CodedEngine) -> None:
    """Wait until no further step comes for a while, which takes few steps."""
    for _ in range(5000):
        if not engine.arrived.acquire(timeout=0.2):
            return
    pytest.fail("steps go on")


def test_steps_that_nobody_waits_for_stand_still_beside_a_first_chunk(make_scheduler, engine, monkeypatch):
    monkeypatch.setattr(scheduler_module, "LONGEST_STILL_S", TIMEOUT_S)
    gpu = Standing()
    scheduler = make_scheduler(lambda: engine, shared=gpu)
    readers = {name: submit(scheduler, name, ENDLESS, request_id=str(name)) for name in (1, 2)}
    try:
        for reader in readers.values():
            assert reader.sending.wait(TIMEOUT_S)  # they waited for their first tokens
        stand(engine)
        scheduler.stop("1")
        assert readers[1].wait().reason is FinishReason.CANCELLED
        stand(engine)
        readers[3] = submit(scheduler, 3, ENDLESS, request_id="3")
        assert readers[3].sending.wait(TIMEOUT_S)  # who comes meanwhile is heard
        stand(engine)
        gpu.end_chunk()
        wait_for_step(engine)
    finally:
        gpu.end_chunk()
        for name in readers:
            scheduler.stop(str(name))


def test_no_end_of_a_first_chunk_is_missed_by_steps_that_stand_still(make_scheduler, engine, monkeypatch):
    """The chunks end at any moment of a step and of the wait that follows it."""
    monkeypatch.setattr(scheduler_module, "LONGEST_STILL_S", TIMEOUT_S)
    gpu = GpuDivision(GpuParts(None, None, ()))  # type: ignore[arg-type]
    scheduler = make_scheduler(lambda: engine, shared=gpu)
    reader = submit(scheduler, 1, ENDLESS, request_id="1")
    assert reader.sending.wait(TIMEOUT_S)
    for number in range(100):
        with gpu.first_chunk(1):
            time.sleep(number % 10 * 1e-4)
        while engine.arrived.acquire(blocking=False):
            pass
        wait_for_step(engine)
    scheduler.stop("1")


@pytest.mark.parametrize("streaming", [True, False])
def test_steps_do_not_stand_still_for_ever(make_scheduler, engine, streaming):
    scheduler = make_scheduler(lambda: engine, shared=Standing())
    reader = CollectingReader()
    scheduler.submit(coded_request(1, 12, streaming=streaming), reader)
    assert reader.wait().tokens == coded_tokens(1, 12)
    other = CollectingReader()
    scheduler.submit(coded_request(2, 12, streaming=streaming), other)
    scheduler.close()
    assert other.tokens == coded_tokens(2, 12)


class NotedShifts(GpuShifts):
    """Knows of each step whether it was urgent."""

    def __init__(self):
        super().__init__()
        self.urgent = []

    def step(self, urgent):
        self.urgent.append(urgent)
        return super().step(urgent)


def test_steps_are_urgent_while_the_reader_of_a_stream_has_nothing(make_scheduler, engine):
    shifts, gate = NotedShifts(), close_gate(engine)
    scheduler = make_scheduler(lambda: engine, shared=shifts)

    def next_step():
        gate.release()
        wait_for_step(engine)
        return shifts.urgent[-1]

    first = submit(scheduler, 1, 900)
    wait_for_step(engine)
    assert shifts.urgent == [True]
    next_step()
    assert first.sending.wait(TIMEOUT_S)
    assert next_step() is False
    second = submit(scheduler, 2, 900)
    assert next_step() is True
    next_step()
    assert second.sending.wait(TIMEOUT_S)
    assert next_step() is False
    for reader in (first, second):
        reader.leave_after = 0
    open_gate(engine)
    whole = CollectingReader()
    scheduler.submit(coded_request(3, 5, streaming=False), whole)
    first.wait(), second.wait(), whole.wait()
    assert shifts.urgent[-1] is False


def gets_the_gpu(shifts: GpuShifts) -> bool:
    """Whether a turn begins."""
    begun = threading.Event()

    def turn() -> None:
        with shifts.turn():
            begun.set()

    threading.Thread(target=turn, daemon=True).start()
    return begun.wait(TIMEOUT_S)


def test_steps_stand_still_while_others_have_the_gpu_and_claim_nothing_without_work(make_scheduler, engine):
    shifts = GpuShifts()
    scheduler = make_scheduler(lambda: engine, shared=shifts)
    with shifts.turn():
        reader = submit(scheduler, 1, 3)
        assert not reader.ended.wait(0.2)
    reader.wait()
    assert gets_the_gpu(shifts)


def test_broken_engine_does_not_keep_the_gpu(make_scheduler, engine):
    shifts = GpuShifts()
    scheduler = make_scheduler(lambda: engine, shared=shifts)
    engine.failure = RuntimeError("told to fail")
    submit(scheduler, 1, 3).ended.wait(TIMEOUT_S)
    assert gets_the_gpu(shifts)
