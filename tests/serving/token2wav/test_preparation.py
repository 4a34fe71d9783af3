"""What is made ready beside work: a part at a time, and used when nothing is missing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from cosyvoice_runtime.serving.gpu_division import GpuDivision
from cosyvoice_runtime.serving.gpu_shifts import GpuShifts
from cosyvoice_runtime.serving.token2wav import WaveRouter, load
from cosyvoice_runtime.serving.token2wav.preparation import Preparation

PATIENCE_S = 10.0


class Parts:
    """Parts that are made ready when the test says so.

    Attributes:
        made: so far.
    """

    def __init__(self, count: int) -> None:
        self.made = 0
        self._count = count
        self._asked = threading.Semaphore(0)
        self._made = threading.Semaphore(0)

    def __call__(self, rest: Callable[[], None]) -> None:
        for _ in range(self._count):
            assert self._asked.acquire(timeout=PATIENCE_S)
            self.made += 1
            self._made.release()
            rest()

    def make(self, count: int) -> None:
        self._asked.release(count)
        for _ in range(count):
            assert self._made.acquire(timeout=PATIENCE_S)


@pytest.fixture
def parts() -> Parts:
    return Parts(2)


def ended(preparation: Preparation) -> None:
    preparation._thread.join(PATIENCE_S)
    assert not preparation._thread.is_alive()


def test_where_nothing_is_missing_all_is_done():
    preparation = Preparation([])
    preparation.start()
    assert preparation.done
    preparation.close()


def test_it_is_done_when_the_last_part_is_ready(parts):
    preparation = Preparation([parts])
    assert not preparation.done
    preparation.start()
    parts.make(1)
    assert not preparation.done
    parts.make(1)
    ended(preparation)
    assert preparation.done


def test_it_rests_as_long_as_a_part_took(monkeypatch):
    now, rests = [0.0], []

    def later(rest: Callable[[], None]) -> None:
        for took_s in (3.0, 5.0):
            now[0] += took_s
            rest()

    preparation = Preparation([later], clock=lambda: now[0])

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        now[0] += seconds
        return False

    monkeypatch.setattr(preparation._closed, "wait", wait)
    preparation.start()
    ended(preparation)
    assert rests == [3.0, 5.0]


def test_closing_ends_it_after_the_part_under_way(parts):
    preparation = Preparation([parts])
    preparation.start()
    parts.make(1)
    preparation.close()
    preparation.close()
    assert not preparation.done
    assert parts.made == 1


def test_failure_leaves_it_missing_and_is_told(caplog):
    def later(_rest: Callable[[], None]) -> None:
        raise RuntimeError("no memory for this graph")

    preparation = Preparation([later])
    preparation.start()
    ended(preparation)
    assert not preparation.done
    assert "no memory for this graph" in caplog.text


def test_what_is_ready_is_forgotten():
    class Memory:
        def __call__(self, rest: Callable[[], None]) -> None:
            rest()

    memory = Memory()
    there = weakref.ref(memory)
    preparation = Preparation([memory], clock=lambda: 0.0)
    del memory
    preparation.start()
    ended(preparation)
    assert preparation.done
    assert there() is None


def test_a_router_begins_with_it_when_it_is_told_to_and_ends_it(parts):
    preparation = Preparation([parts])
    router = WaveRouter([], [preparation])
    assert not preparation._thread.is_alive()
    router.prepare()
    parts.make(1)
    router.close()
    ended(preparation)
    assert not preparation.done


def test_the_speech_lms_part_is_prepared_before_that_of_token2wav():
    made: list[str] = []
    shared = GpuDivision(SimpleNamespace(of_few=object()))
    assert shared.leave([lambda rest: made.append("speech LM")])
    for each in load._later(SimpleNamespace(later=lambda rest: made.append("token2wav")), shared):
        each(lambda: None)
    assert made == ["speech LM", "token2wav"]


def test_few_are_many_until_it_is_done(parts):
    class Division(GpuShifts):
        def few(self, utterances: int) -> bool:
            return utterances < 3

    preparation, shared = Preparation([parts]), Division()
    preparation.start()
    assert not load._few(shared, preparation, 1)
    parts.make(2)
    ended(preparation)
    assert load._few(shared, preparation, 1)
    assert not load._few(shared, preparation, 3)
    assert load._few(shared, None, 1)
