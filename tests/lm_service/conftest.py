"""Schedulers that must leave nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from coded_engine import TIMEOUT_S, CodedEngine

from cosyvoice_runtime.lm_service.scheduler import Load, Scheduler


class Loads:
    """Remembers the load and wakes whoever waits for one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.seen: list[Load] = []

    def __call__(self, load: Load) -> None:
        with self._changed:
            self.seen.append(load)
            self._changed.notify_all()

    def wait_for(self, holds: Callable[[Load], bool]) -> Load:
        with self._changed:
            assert self._changed.wait_for(lambda: self.seen and holds(self.seen[-1]), TIMEOUT_S)
            return self.seen[-1]


@pytest.fixture
def engine() -> CodedEngine:
    return CodedEngine()


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def make_scheduler(loads: Loads) -> Iterator[Callable[..., Scheduler]]:
    """``make_scheduler(open_engine, max_waiting, idle_timeout_s, clock)``, closed after the test."""
    threads = set(threading.enumerate())
    made: list[Scheduler] = []

    def make(open_engine, max_waiting=100, idle_timeout_s=60.0, **options) -> Scheduler:
        made.append(Scheduler(open_engine, max_waiting, idle_timeout_s, loads, **options))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler], engine: CodedEngine) -> Scheduler:
    return make_scheduler(lambda: engine)
