"""Utterances begin while those in progress are sure of pages, and wait otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from coded_gpu import BLOCK, Gpu
from coded_waves import FakeClock, OneVoice, chunk

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.token2wav import WaveScheduler, WaveService
from cosyvoice_runtime.serving.token2wav import scheduler as scheduler_module
from cosyvoice_runtime.serving.token2wav.openings import (
    LEAST_PARTS,
    LONGEST_WAIT_S,
    PAGES_AHEAD,
    PAGES_OF_FIRST,
    Openings,
)
from cosyvoice_runtime.serving.token2wav.turn import WaveJob

PAGES = LEAST_PARTS * PAGES_AHEAD
EACH = PAGES_AHEAD + PAGES_OF_FIRST
"""Pages that one more utterance wants to find."""


@dataclass
class Room:
    """Pages as `VoiceCache` tells of them.

    Attributes:
        voices: pages that each voice would take.
    """

    speaking: int = 1
    pages_left: int = PAGES
    num_pages: int = PAGES
    voices: dict[str, int] = field(default_factory=dict)

    def pages_to_take(self, key: str, tensors: object) -> int:
        return self.voices.get(key, 0)


def jobs(names: str, **options) -> list[WaveJob]:
    """One a second of first chunks."""
    return [WaveJob(chunk(name, [1], **options), print, float(at)) for at, name in enumerate(names)]


def held(room: Room, new: list[WaveJob], now: float = 0.0) -> str:
    waiting = Openings(room).held(new, now)
    return "".join(job.chunk.utterance_id for job in new if job in waiting)


@pytest.mark.parametrize(
    ("pages_left", "waiting"),
    [
        (PAGES_AHEAD + EACH - 1, "abc"),
        (PAGES_AHEAD + EACH, "bc"),
        (PAGES_AHEAD + 2 * EACH, "c"),
        (PAGES, ""),
    ],
)
def test_as_many_begin_as_there_are_pages_for(pages_left, waiting):
    assert held(Room(pages_left=pages_left), jobs("abc")) == waiting


def test_the_most_urgent_begin():
    new = jobs("abc")
    assert held(Room(pages_left=PAGES_AHEAD + EACH), new[::-1]) == "cb"


def test_a_voice_takes_pages_once():
    room = Room(pages_left=PAGES_AHEAD + 2 * EACH + 5, voices={"known": 5})
    assert held(room, jobs("abc")) == "c"
    room.pages_left -= 1
    assert held(room, jobs("abc")) == "bc"


def test_somebody_begins_where_nobody_is_in_progress():
    assert held(Room(speaking=0, pages_left=0), jobs("abc")) == "bc"


def test_whoever_has_waited_for_long_begins_one_at_a_time():
    room, new = Room(pages_left=0), jobs("abc")
    assert held(room, new, LONGEST_WAIT_S - 0.1) == "abc"
    assert held(room, new, LONGEST_WAIT_S + 9) == "bc"


def test_a_listener_who_gets_all_at_once_has_waited_since_it_came():
    new = [WaveJob(chunk("whole", [1], cushion_s=8.0), print, 8.0), *jobs("a")]
    new[1].deadline = LONGEST_WAIT_S - 5.0
    assert held(Room(pages_left=0), new, LONGEST_WAIT_S - 0.1) == "wholea"
    assert held(Room(pages_left=0), new, LONGEST_WAIT_S) == "a"


@pytest.mark.parametrize("pages", [0, LEAST_PARTS - 1])
def test_few_pages_in_all_hold_nobody_back(pages):
    assert held(Room(num_pages=pages, pages_left=0), jobs("abc")) == ""


def test_what_waits_is_shown_when_it_changes():
    shown = []
    room = Room(pages_left=0)
    openings = Openings(room, shown.append)
    for new in ("", "ab", "ba", "a", ""):
        openings.held(jobs(new), 0.0)
    assert shown == [2, 1, 0]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, True),
        ({"cushion_s": 8.0}, True),
        ({"position": 25}, False),
        ({"cancel": True}, False),
        ({"continues": True}, False),
    ],
)
def test_what_begins(options, begins):
    assert WaveJob(chunk("a", [1], **options), print, 0.0).begins == begins


def test_what_is_launched_has_begun():
    job = WaveJob(chunk("a", [1, 2]), print, 0.0)
    job.launch(1)
    assert not job.begins


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def service(gpu) -> WaveService:
    return WaveService(gpu, OneVoice(), max_utterances=8, idle_timeout_s=60.0)


@pytest.fixture
def room(service) -> Room:
    """One page less than somebody needs beside one in progress."""
    return Room(pages_left=PAGES_AHEAD + EACH - 1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def scheduler(gpu, service, room, clock, monkeypatch) -> Iterator[WaveScheduler]:
    monkeypatch.setattr(scheduler_module, "LOOK_S", 0.01)
    scheduler = WaveScheduler(
        service,
        4,
        3,
        1.0,
        BLOCK,
        on_gpu=True,
        held=Openings(room).held,
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


def test_the_end_waits_for_nobody(speaking, gpu, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    gpu.finish_all()
    speaking.close()
    assert outcomes.names == ["a", "b"]


def test_nobody_waits_for_long(speaking, gpu, clock, outcomes):
    speaking.submit(chunk("b", [1], last=True), outcomes.of("b"))
    clock.now = LONGEST_WAIT_S
    assert gpu.launched(2)
