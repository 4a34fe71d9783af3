"""Launches and ends of batches in threads of their own, with coded networks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from coded_waves import NAN_TOKEN, CodedWaves, assert_nothing_held, chunk

from cosyvoice_runtime.engine.batches import WaveService
from cosyvoice_runtime.errors import NotFoundError

IDLE_S = 60.0
TIMEOUT_S = 120.0


class BlockedLaunch(CodedWaves):
    """A launch that goes on when the test says so."""

    def __init__(self, others: CodedWaves) -> None:
        super().__init__()
        self.open_states = others.open_states
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def launch(self, states):
        self.begun.set()
        assert self.goes_on.wait(TIMEOUT_S)
        return super().launch(states)


@pytest.fixture
def launching(waves):
    return BlockedLaunch(waves)


@pytest.fixture
def with_two_workers(waves, voices, clock, launching):
    service = WaveService(waves, voices, IDLE_S, clock=clock, concurrent=[launching])
    yield service
    launching.goes_on.set()
    service.close()


def in_another_thread(call):
    """What it gives, once the test asks for that."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def stays(future) -> bool:
    """Whether it does not end: a fault is seen soon enough, and a slow machine sees none."""
    with pytest.raises(TimeoutError):
        future.result(0.2)
    return True


def test_end_of_a_batch_does_not_wait_for_a_launch(with_two_workers, launching, waves, voices):
    """A first chunk's listener would wait for the launch of others' turn."""
    service = with_two_workers
    outcomes = service.launch([chunk("a", [1], last=True)])
    launch = in_another_thread(lambda: service.launch([chunk("b", [2], last=True)], worker=1))
    assert launching.begun.wait(TIMEOUT_S)
    [wave] = in_another_thread(outcomes).result(TIMEOUT_S)
    assert wave.tolist() == [1]
    assert "a" not in service
    assert service.usage().utterances == len(waves.open_states) == voices.users == 1
    launching.goes_on.set()
    [wave] = launch.result(TIMEOUT_S)()
    assert wave.tolist() == [2]
    assert_nothing_held(service, waves, voices)


@pytest.mark.parametrize("idle", [False, True])
def test_what_is_being_launched_is_not_freed(with_two_workers, launching, waves, voices, clock, idle):
    """Though an earlier part of the utterance fails meanwhile, or its time is over."""
    service = with_two_workers
    service.run([chunk("a", [1])])
    earlier = service.launch([chunk("a", [NAN_TOKEN], 1)])
    launch = in_another_thread(lambda: service.launch([chunk("a", [2], 2, last=True)], worker=1))
    assert launching.begun.wait(TIMEOUT_S)
    if idle:
        clock.now += 2 * IDLE_S
        service.sweep()
        assert "a" in service
    [error] = in_another_thread(earlier).result(TIMEOUT_S)
    assert "NaN" in str(error)
    assert "a" not in service
    assert len(waves.open_states) == voices.users == 1
    launching.goes_on.set()
    [late] = launch.result(TIMEOUT_S)()
    assert isinstance(late, NotFoundError)
    assert_nothing_held(service, waves, voices)


def test_launch_that_fails_holds_nothing(waves, voices, clock):
    class Lost(CodedWaves):
        def launch(self, states):
            raise KeyboardInterrupt

    service = WaveService(waves, voices, IDLE_S, clock=clock, concurrent=[Lost()])
    service.run([chunk("a", [1])])
    with pytest.raises(KeyboardInterrupt):
        service.launch([chunk("a", [2], 1)], worker=1)
    assert service.run([chunk("a", cancel=True)])[0].size == 0
    assert_nothing_held(service, waves, voices)
    service.close()


def test_batches_are_launched_one_after_the_other_and_closing_waits_for_that(
    with_two_workers, launching, waves
):
    service = with_two_workers
    first = in_another_thread(lambda: service.launch([chunk("a", [1], last=True)], worker=1))
    assert launching.begun.wait(TIMEOUT_S)
    second = in_another_thread(lambda: service.launch([chunk("b", [2], last=True)]))
    assert stays(second)
    closing = in_another_thread(service.close)
    assert stays(closing)
    assert waves.batches == []
    launching.goes_on.set()
    first.result(TIMEOUT_S)()
    second.result(TIMEOUT_S)()
    closing.result(TIMEOUT_S)
    assert (launching.batches, waves.batches) == ([[[1]]], [[[2]]])


def test_who_is_told_of_the_usage_holds_up_no_launch(waves, voices, clock):
    told, goes_on = threading.Event(), threading.Event()

    def tell(usage) -> None:
        if usage.utterances:
            told.set()
            assert goes_on.wait(TIMEOUT_S)

    service = WaveService(waves, voices, IDLE_S, tell, clock=clock)
    end = in_another_thread(service.launch([chunk("a", [1])]))
    assert told.wait(TIMEOUT_S)
    sweep = in_another_thread(service._ring)  # the timer's
    further = in_another_thread(lambda: service.launch([chunk("a", [2], 1)])).result(TIMEOUT_S)
    assert all(stays(future) for future in (end, sweep))
    goes_on.set()
    assert [wave.tolist() for wave in end.result(TIMEOUT_S)] == [[1]]
    assert [wave.tolist() for wave in further()] == [[2]]
    sweep.result(TIMEOUT_S)
    service.close()
