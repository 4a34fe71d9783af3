"""Utterances that wait for pages beside those in progress, through the scheduler of the batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coded_gpu import Gpu
from coded_pages import EACH, PAGES, Room
from coded_waves import OneVoice, chunk, runtime

from cosyvoice_runtime.engine.batches import WaveScheduler, WaveService, planner
from cosyvoice_runtime.engine.batches.pages import PAGES_AHEAD, SHORT, PageAdmission
from cosyvoice_runtime.errors import InvalidInput, OverloadedError


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def service(gpu) -> WaveService:
    return WaveService(gpu, OneVoice(), idle_timeout_s=60.0)


@pytest.fixture
def room(service) -> Room:
    """One page less than somebody needs beside one in progress."""
    return Room(pages_left=PAGES_AHEAD + EACH - 1)


@pytest.fixture
def shown() -> list[int]:
    """Numbers of those who wait for pages."""
    return []


@pytest.fixture
def scheduler(gpu, service, room, shown, clock, monkeypatch) -> Iterator[WaveScheduler]:
    monkeypatch.setattr(planner, "LOOK_S", 0.01)
    openings = PageAdmission(room, shown.append)
    scheduler = WaveScheduler(
        service,
        runtime(gpu, 4, on_gpu=True),
        3,
        1.0,
        pages=openings,
        clock=clock,
        end_process=lambda _: None,
    )
    yield scheduler
    gpu.finish_all()
    scheduler.close()


@pytest.fixture
def speaking(scheduler, room, gpu, outcomes) -> WaveScheduler:
    """With an utterance in progress."""
    room.speaking = 0
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert gpu.launched(1)
    gpu.turns[0].set()
    assert outcomes.wait(1)
    room.speaking = 1
    return scheduler


def finished(gpu: Gpu, turn: int) -> None:
    assert gpu.launched(turn + 1)
    gpu.turns[turn].set()


def test_another_utterance_waits_until_there_are_pages(speaking, room, gpu, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    speaking.submit(chunk("a", [2], 1), outcomes.of("a"))
    finished(gpu, 1)
    assert outcomes.wait(2)
    room.pages_left += 1
    assert gpu.launched(3)
    assert gpu.batches == [[[0]], [[2]], [[1]]]


def test_later_segment_of_a_text_does_not_wait(speaking, gpu, outcomes):
    speaking.submit(chunk("next", [1], last=True, continues=True), outcomes.of("next"))
    assert gpu.launched(2)


def test_an_utterance_that_was_opened_without_tokens_goes_on(speaking, room, gpu, outcomes):
    room.speaking = 0
    speaking.submit(chunk("b"), outcomes.of("b"))
    finished(gpu, 1)
    assert outcomes.wait(2)
    room.speaking = 2
    speaking.submit(chunk("b", [1]), outcomes.of("b"))
    assert gpu.launched(3)


def test_one_that_waits_can_be_cancelled(speaking, outcomes):
    speaking.submit(chunk("b", [1]), outcomes.of("b"))
    speaking.submit(chunk("b", cancel=True), outcomes.of("cancel"))
    assert outcomes.wait(3)
    assert set(outcomes.names) == {"a", "b", "cancel"}


def test_those_who_wait_take_no_place_of_those_in_progress(speaking, gpu, outcomes):
    for name in "bcd":
        speaking.submit(chunk(name, [1]), outcomes.of(name))
    with pytest.raises(OverloadedError, match="3 chunks wait"):
        speaking.submit(chunk("e", [1]), outcomes.of("e"))
    for position in (1, 2, 3):
        speaking.submit(chunk("a", [position], position), outcomes.of("a"))
    with pytest.raises(OverloadedError, match="3 chunks wait"):
        speaking.submit(chunk("a", [4], 4), outcomes.of("a"))
    for turn in (1, 2, 3):
        finished(gpu, turn)
    assert outcomes.wait(4)
    assert outcomes.names == list("aaaa")


def test_the_end_waits_for_nobody_and_shows_so(speaking, shown, gpu, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    gpu.finish_all()
    speaking.close()
    assert outcomes.names == ["a", "b"]
    assert shown[-1:] in ([], [0])


def test_an_opening_that_is_wrong_waits_for_nothing(speaking, outcomes):
    with pytest.raises(InvalidInput, match="noise_seed"):
        speaking.submit(chunk("b", [1], noise_seed=-1), outcomes.of("b"))


@pytest.mark.parametrize(("pages", "order"), [(PAGES, "cb"), (SHORT * PAGES - 1, "bc")])
def test_while_pages_are_few_the_well_supplied_are_served_as_they_came(
    scheduler, room, gpu, outcomes, pages, order
):
    room.pages_left, room.speaking = pages, 0
    for token, name in enumerate("abc"):
        scheduler.submit(chunk(name, [token]), outcomes.of(name))
        finished(gpu, token)
        assert outcomes.wait(token + 1)
    scheduler.submit(chunk("a", [10], 1), outcomes.of("busy"))
    assert gpu.launched(4)
    scheduler.submit(chunk("c", [12], 1, cushion_s=5.0), outcomes.of("c"))
    scheduler.submit(chunk("b", [11], 1, cushion_s=6.0), outcomes.of("b"))
    gpu.finish_all()
    scheduler.close()
    assert outcomes.names[-3:] == ["busy", *order]
