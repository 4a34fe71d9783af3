"""Turns of any chunk side by side: whose utterances are where, and when a lane may go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coded_gpu import Gpu, Part
from coded_waves import BLOCK, PROMPT, FakeClock, OneVoice, chunk, runtime
from outcomes import Outcomes

from cosyvoice_runtime.engine.batches import WaveScheduler, WaveService
from cosyvoice_runtime.engine.batches.lane import TurnLane, by_lane, jobs_of, soonest
from cosyvoice_runtime.engine.batches.pace import TurnPace, TurnSize
from cosyvoice_runtime.engine.batches.turn import WaveJob
from cosyvoice_runtime.engine.runtimes.runtime import TurnsBeside


@pytest.fixture
def one() -> Gpu:
    return Gpu()


@pytest.fixture
def two(one) -> Part:
    return Part(one)


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def scheduler(one, two, ended) -> Iterator[WaveScheduler]:
    service = WaveService(one, OneVoice(), idle_timeout_s=60.0, beside=[two])
    lanes = [TurnsBeside(two, 2, lambda: two)]
    scheduler = WaveScheduler(
        service,
        runtime(one, 2, on_gpu=True, beside=lanes),
        16,
        1.0,
        clock=FakeClock(),
        end_process=ended.append,
    )
    yield scheduler
    run(scheduler, one, two)


@pytest.fixture
def both(scheduler, one, two, outcomes) -> WaveScheduler:
    """With a turn under way in each lane, of utterances a and b."""
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert one.launched(1)
    scheduler.submit(chunk("b", [1]), outcomes.of("b"))
    assert two.launched(1)
    return scheduler


def run(scheduler: WaveScheduler, *lanes: Gpu) -> None:
    for lane in lanes:
        lane.finish_all()
    scheduler.close()


def test_who_comes_while_a_turn_is_under_way_has_the_other_lane(both, one, two, outcomes):
    two.turns[0].set()
    assert outcomes.wait(1)
    assert outcomes.delivered == [("b", [1])]


def test_utterance_goes_on_in_whichever_lane_is_free_once_its_turn_has_ended(both, one, two, outcomes):
    two.turns[0].set()
    assert outcomes.wait(1)
    both.submit(chunk("b", [2], 1, last=True), outcomes.of("b again"))
    assert two.launched(2)
    one.turns[0].set()
    assert outcomes.wait(2)
    both.submit(chunk("a", [3], 1, last=True), outcomes.of("a again"))
    assert one.launched(2)
    run(both, one, two)
    assert one.batches == [[[0]], [[3]]]
    assert two.batches == [[[1]], [[2]]]


def test_parts_of_an_utterance_are_never_under_way_in_two_lanes(scheduler, one, two, outcomes):
    scheduler.submit(chunk("a", [0]), outcomes.of("first"))
    assert one.launched(1)
    scheduler.submit(chunk("a", [1], 1, last=True), outcomes.of("second"))
    scheduler.submit(chunk("b", [2], last=True), outcomes.of("b"))
    assert two.launched(1)
    two.turns[0].set()
    assert outcomes.wait(1)
    assert two.batches == [[[2]]]
    run(scheduler, one, two)
    assert outcomes.delivered == [("b", [2]), ("first", [0]), ("second", [1])]


def test_new_voices_are_computed_in_the_first_lane_alone(scheduler, one, two, outcomes):
    scheduler.submit(chunk("busy", [0]), outcomes.of("busy"))
    assert one.launched(1)
    scheduler.submit(chunk("new", [3], last=True, voice_key="new", prompt=PROMPT), outcomes.of("new"))
    scheduler.submit(chunk("known", [4], last=True), outcomes.of("known"))
    assert two.launched(1)
    run(scheduler, one, two)
    assert two.batches == [[[4]]]
    assert [[3]] in one.batches
    assert ("new", [3]) in outcomes.delivered


def test_gpu_lost_in_the_other_lane_answers_everybody_and_ends_the_process(both, one, two, outcomes, ended):
    two.lost.add(0)
    two.turns[0].set()
    assert outcomes.wait(2)
    run(both, one, two)
    assert {name for name, _ in outcomes.delivered} == {"a", "b"}
    assert len(ended) == 1


def test_what_a_cancelled_utterance_holds_in_the_other_lane_is_free_when_its_turn_has_ended(
    scheduler, one, two, outcomes
):
    scheduler.submit(chunk("a", [0], last=True), outcomes.of("a"))
    assert one.launched(1)
    scheduler.submit(chunk("gone", [5]), outcomes.of("gone"))
    assert two.launched(1)
    before = set(one.open_states)
    scheduler.submit(chunk("gone", cancel=True), outcomes.of("cancel"))
    one.turns[0].set()
    assert outcomes.wait(3)
    assert len(one.open_states & before) == 1  # its turn still writes there
    run(scheduler, one, two)
    assert one.open_states == set()


def test_first_chunk_has_a_free_lane_while_another_free_one_has_others_to_do():
    lanes = [lane(0), lane(1), lane(2, hurried=True)]
    first, later = job("first", cushion_s=0.0), job("later", cushion_s=3.0)
    divided = by_lane([later, first], lanes, 0.0, BLOCK)
    assert first in jobs_of(lanes[1], divided)
    assert later in jobs_of(lanes[0], divided)
    assert jobs_of(lanes[2], divided) == []


def test_first_chunk_has_the_free_lane_that_may_not_do_what_is_left():
    lanes = [lane(0), lane(1), lane(2, hurried=True)]
    voice = job("new voice", cushion_s=0.0)
    voice.needs_voice = True
    first = job("first", cushion_s=0.0)
    divided = by_lane([voice, first], lanes, 0.0, BLOCK)
    assert jobs_of(lanes[1], divided) == [first]
    assert voice in jobs_of(lanes[0], divided)


def test_free_lane_comes_before_one_whose_turn_should_have_ended():
    lanes = [lane(0), lane(1)]
    size = TurnSize.of([BLOCK], BLOCK)
    lanes[0].pace.launched(size, 0.0, 0.0)
    lanes[0].pace.ended(0.1)
    lanes[0].pace.launched(size, 0.2, 0.2)
    assert soonest([(each, [job("a", 0.0)]) for each in lanes], now=1.0)[1] is lanes[1]


def lane(number: int, hurried: bool = False) -> TurnLane:
    return TurnLane(number, 2, TurnPace(2), hurried=hurried)


def job(name: str, cushion_s: float) -> WaveJob:
    return WaveJob(chunk(name, [1], cushion_s=cushion_s), lambda _: None, cushion_s)
