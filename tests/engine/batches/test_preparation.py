"""What is made ready beside work: a part at a time, and used when nothing is missing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from cosyvoice_runtime.engine.batches import WaveRouter, load
from cosyvoice_runtime.engine.batches.router import Preparation
from cosyvoice_runtime.gpu.partitions.division import GpuDivision
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later
from eventually import eventually

PATIENCE_S = 60.0


class Parts:
    """Parts that are made ready when the test says so.

    Attributes:
        begun, made: so far.
    """

    def __init__(self, count: int) -> None:
        self.begun = self.made = 0
        self._count = count
        self._asked = threading.Semaphore(0)
        self._made = threading.Semaphore(0)

    def __call__(self, rest: Callable[[], None]) -> None:
        for _ in range(self._count):
            self.begun += 1
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


@pytest.fixture
def ready() -> list[str]:
    """Told when nothing is missing any more."""
    return []


def prepares(ready: list[str], *later: Later) -> Preparation:
    return Preparation(later, lambda: ready.append("ready"), clock=lambda: 0.0)


def ended(preparation: Preparation) -> None:
    preparation._thread.join(PATIENCE_S)
    assert not preparation._thread.is_alive()


def test_where_nothing_is_missing_all_is_ready_at_the_start(ready):
    preparation = prepares(ready)
    assert ready == []
    preparation.start()
    assert ready == ["ready"]
    preparation.close()


def test_all_is_ready_with_the_last_part(ready, parts):
    preparation = prepares(ready, parts)
    preparation.start()
    parts.make(1)
    assert ready == []
    parts.make(1)
    ended(preparation)
    assert ready == ["ready"]


def test_it_rests_as_long_as_a_part_took(monkeypatch, ready):
    now, rests = [0.0], []

    def later(rest: Callable[[], None]) -> None:
        for took_s in (3.0, 5.0):
            now[0] += took_s
            rest()

    preparation = Preparation([later], lambda: ready.append(rests[:]), clock=lambda: now[0])

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        now[0] += seconds
        return False

    monkeypatch.setattr(preparation._closed, "wait", wait)
    preparation.start()
    ended(preparation)
    assert ready == [[3.0, 5.0]]


def ends_after_the_part_under_way(preparation: Preparation, close: Callable[[], None], parts: Parts) -> None:
    """Whoever closes it waits for the second of three parts, and no longer."""
    parts.make(1)
    eventually(lambda: parts.begun == 2)
    closing = threading.Thread(target=close)
    closing.start()
    eventually(preparation._closed.is_set)
    parts.make(1)
    closing.join(PATIENCE_S)
    ended(preparation)
    assert not closing.is_alive()
    assert parts.made == 2


def test_closing_ends_it_after_the_part_under_way(ready):
    parts = Parts(3)
    preparation = prepares(ready, parts)
    preparation.start()
    ends_after_the_part_under_way(preparation, preparation.close, parts)
    preparation.close()
    assert ready == []


def test_failure_leaves_it_missing_and_is_told(ready, caplog):
    def later(_rest: Callable[[], None]) -> None:
        raise RuntimeError("no memory for this graph")

    preparation = prepares(ready, later)
    preparation.start()
    ended(preparation)
    assert ready == []
    assert "no memory for this graph" in caplog.text


def test_what_is_ready_is_forgotten(ready):
    class Memory:
        def __call__(self, rest: Callable[[], None]) -> None:
            rest()

    memory = Memory()
    there = weakref.ref(memory)
    preparation = prepares(ready, memory)
    del memory
    preparation.start()
    ended(preparation)
    assert ready == ["ready"]
    assert there() is None


def test_a_router_begins_with_it_when_it_is_told_to_and_ends_it(ready):
    parts = Parts(3)
    preparation = prepares(ready, parts)
    router = WaveRouter([], [preparation])
    assert not preparation._thread.is_alive()
    router.prepare()
    ends_after_the_part_under_way(preparation, router.close, parts)
    assert ready == []


@pytest.fixture
def divided() -> GpuDivision:
    return GpuDivision(SimpleNamespace(of_few=object()))


def runtime(later: Later | None, of_few: bool | None) -> SimpleNamespace:
    return SimpleNamespace(later=later, of_few=of_few)


def test_the_speech_lms_part_is_prepared_before_that_of_token2wav(divided):
    made: list[str] = []
    assert divided.leave([lambda rest: made.append("speech LM")])
    preparation = load.prepare_few(runtime(lambda rest: made.append("token2wav"), of_few=False), divided)
    preparation.start()
    ended(preparation)
    assert made == ["speech LM", "token2wav"]


def test_few_are_many_until_all_is_ready(divided, parts):
    preparation = load.prepare_few(runtime(parts, of_few=False), divided)
    preparation.start()
    assert not divided.few(1)
    parts.make(2)
    ended(preparation)
    assert divided.few(1)


def test_few_have_their_lanes_at_once_where_nothing_is_missing(divided):
    load.prepare_few(runtime(None, of_few=False), divided).start()
    assert divided.few(1)


def test_gpu_is_not_divided_for_few_who_have_no_lanes(divided):
    load.prepare_few(runtime(None, of_few=None), divided).start()
    assert not divided.few(1)
