"""Something large that goes while nobody needs it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cosyvoice_runtime.serving.hosted import extractors
from cosyvoice_runtime.serving.hosted.extractors import Resting

IDLE_S = 30.0


class Timers:
    """Timers that ring when a test says so."""

    def __init__(self) -> None:
        self.running: list[Timers.Timer] = []

    def timer(self, seconds, ring):
        assert seconds == IDLE_S
        return Timers.Timer(self, ring)

    class Timer:
        def __init__(self, timers, ring):
            self.timers, self.ring, self.daemon = timers, ring, False

        def start(self):
            assert self.daemon  # the process need not wait for it
            self.timers.running.append(self)

        def cancel(self):
            self.timers.running.remove(self)


class Large:
    pass


@pytest.fixture
def timers(monkeypatch):
    timers = Timers()
    monkeypatch.setattr(extractors.threading, "Timer", timers.timer)
    return timers


@pytest.fixture
def opened():
    return []


def resting_over(opened, idle_s=IDLE_S, gone=lambda: None):
    def open_():
        opened.append(Large())
        return opened[-1]

    return Resting(open_, idle_s, gone)


def test_it_goes_when_it_has_been_idle_and_comes_back(timers, opened):
    went = []
    large = resting_over(opened, gone=lambda: went.append(len(opened)))
    assert len(opened) == 1
    with large.used() as held:
        assert held is opened[0]
        assert timers.running == []
    [timer] = timers.running
    timers.running.clear()
    timer.ring()
    assert went == [1]
    with large.used() as held:
        assert held is opened[1]


def test_it_stays_while_somebody_uses_it(timers, opened):
    large = resting_over(opened)
    with large.used():
        with large.used():
            pass
        assert timers.running == []  # the first still uses it
    assert len(timers.running) == 1
    assert len(opened) == 1


def test_who_comes_while_it_rings_keeps_it(timers, opened):
    went = []
    large = resting_over(opened, gone=lambda: went.append(True))
    [timer] = timers.running
    with large.used() as held:
        timer.ring()
        assert held is opened[0]
    with large.used() as held:
        assert held is opened[0]
    assert went == []


def test_without_a_limit_it_stays(timers, opened):
    with resting_over(opened, idle_s=0).used():
        pass
    assert timers.running == []


def test_all_who_come_at_once_share_one(timers, opened):
    large = resting_over(opened)
    timers.running.pop().ring()
    begun, goes_on = threading.Event(), threading.Event()
    first = large._open

    def held_up():
        begun.set()
        assert goes_on.wait(60)
        return first()

    large._open = held_up

    def use():
        with large.used() as held:
            return held

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use) for _ in range(3)]
        assert begun.wait(60)
        goes_on.set()
        assert {user.result(60) for user in users} == {opened[1]}
    assert len(opened) == 2


def test_what_can_not_be_opened_again_is_told_and_tried_again(timers, opened):
    large = resting_over(opened)
    timers.running.pop().ring()
    works = large._open

    def fails():
        raise OSError("no such file")

    large._open = fails
    with pytest.raises(OSError, match="no such file"), large.used():
        pass
    large._open = works
    with large.used() as held:
        assert held is opened[1]


def test_closed_it_is_gone_at_once(timers, opened):
    large = resting_over(opened)
    large.close()
    assert timers.running == []
    assert large._held is None
