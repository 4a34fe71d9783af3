"""Utterances begin while those in progress are sure of pages, and wait otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from coded_gpu import BLOCK, Gpu
from coded_waves import FakeClock, OneVoice, chunk

from cosyvoice_runtime.serving.token2wav import WaveScheduler, WaveService
from cosyvoice_runtime.serving.token2wav import scheduler as scheduler_module
from cosyvoice_runtime.serving.token2wav.service import PAGES_AHEAD, PAGES_OF_FIRST
from cosyvoice_runtime.serving.token2wav.turn import LONGEST_WAIT_S

PAGES = 16 * PAGES_AHEAD


@pytest.fixture
def gpu() -> Gpu:
    gpu = Gpu()
    gpu.flow.num_pages = gpu.flow.free_pages = PAGES
    return gpu


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def voice() -> OneVoice:
    return OneVoice()


@pytest.fixture
def service(gpu, voice) -> WaveService:
    return WaveService(gpu, voice, max_utterances=8, idle_timeout_s=60.0)


@pytest.fixture
def scheduler(gpu, service, clock, monkeypatch) -> Iterator[WaveScheduler]:
    monkeypatch.setattr(scheduler_module, "LOOK_S", 0.01)
    scheduler = WaveScheduler(
        service, 4, 16, 1.0, BLOCK, on_gpu=True, clock=clock, end_process=lambda _: None
    )
    yield scheduler
    gpu.flow.free_pages = PAGES
    gpu.finish_all()
    scheduler.close()


@pytest.fixture
def speaking(scheduler, gpu, outcomes) -> WaveScheduler:
    """With an utterance in progress, and one page less than another one needs beside it."""
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert gpu.launched(1)
    gpu.turns[0].set()
    assert outcomes.wait(1)
    gpu.flow.free_pages = 2 * PAGES_AHEAD + PAGES_OF_FIRST - 1
    return scheduler


def test_another_utterance_waits_until_there_are_pages(speaking, gpu, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    speaking.submit(chunk("a", [2], 1), outcomes.of("a2"))
    assert gpu.launched(2)
    gpu.turns[1].set()
    assert outcomes.wait(2)
    gpu.flow.free_pages += 1
    assert gpu.launched(3)
    assert gpu.batches == [[[0]], [[2]], [[1]]]


def test_utterance_that_ends_makes_room(speaking, gpu, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    speaking.submit(chunk("a", [2], 1, last=True), outcomes.of("a2"))
    assert gpu.launched(2)
    gpu.turns[1].set()  # nobody is in progress any more
    assert gpu.launched(3)
    assert gpu.batches[2] == [[1]]


def test_pages_of_voices_that_nobody_speaks_with_count(speaking, gpu, voice, outcomes):
    voice.pages_to_give = 1
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    assert gpu.launched(2)


def test_as_many_begin_as_there_are_pages_for_the_earliest_first(speaking, gpu, clock, outcomes):
    for token, name in enumerate("bcd", 1):
        clock.now += 0.1
        speaking.submit(chunk(name, [token], last=True), outcomes.of(name))
    gpu.flow.free_pages = PAGES_AHEAD + 2 * (PAGES_AHEAD + PAGES_OF_FIRST)
    assert gpu.launched(2)
    assert gpu.batches[1] == [[1], [2]]


def test_later_segment_of_a_text_does_not_wait(speaking, gpu, outcomes):
    speaking.submit(chunk("next", [1], last=True, cushion_s=0.4), outcomes.of("next"))
    assert gpu.launched(2)


def test_nobody_waits_for_long(speaking, gpu, clock, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    clock.now = LONGEST_WAIT_S
    assert gpu.launched(2)
    assert gpu.batches[1] == [[1]]


def test_one_that_waits_can_be_cancelled(speaking, outcomes):
    speaking.submit(chunk("b", [1]), outcomes.of("b"))
    speaking.submit(chunk("b", cancel=True), outcomes.of("cancel"))
    assert outcomes.wait(3)
    assert {name for name, _ in outcomes.delivered} == {"a", "b", "cancel"}


@pytest.mark.parametrize("pages", [0, 9, 15])
def test_few_pages_in_all_hold_nobody_back(service, gpu, outcomes, scheduler, pages):
    gpu.flow.num_pages, gpu.flow.free_pages = pages, 0
    for token, name in enumerate("ab"):
        scheduler.submit(chunk(name, [token]), outcomes.of(name))
        assert gpu.launched(token + 1)
        gpu.turns[token].set()
        assert outcomes.wait(token + 1)
    assert service.may_open() == sys.maxsize
