"""Turns of any chunk side by side: whose utterances are where, and when a lane may go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coded_gpu import BLOCK, Gpu, Part
from coded_waves import PROMPT, FakeClock, OneVoice, chunk
from outcomes import Outcomes

from cosyvoice_runtime.serving.token2wav import WaveScheduler, WaveService
from cosyvoice_runtime.serving.token2wav.runtime import TurnsBeside


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
    service = WaveService(one, OneVoice(), max_utterances=8, idle_timeout_s=60.0, beside=[two])
    lanes = [TurnsBeside(two, 2, lambda: two)]
    scheduler = WaveScheduler(
        service, 2, 16, 1.0, BLOCK, on_gpu=True, beside=lanes, clock=FakeClock(), end_process=ended.append
    )
    yield scheduler
    run(scheduler, one, two)


def run(scheduler: WaveScheduler, *lanes: Gpu) -> None:
    for lane in lanes:
        lane.finish_all()
    scheduler.close()


def test_who_comes_while_a_turn_is_under_way_has_the_other_lane(scheduler, one, two, outcomes):
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert one.launched(1)
    scheduler.submit(chunk("b", [1]), outcomes.of("b"))
    assert two.launched(1)
    two.turns[0].set()
    assert outcomes.wait(1)
    assert outcomes.delivered == [("b", [1])]


def test_utterance_goes_on_in_whichever_lane_is_free_once_its_turn_has_ended(scheduler, one, two, outcomes):
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert one.launched(1)
    scheduler.submit(chunk("b", [1]), outcomes.of("b"))
    assert two.launched(1)
    two.turns[0].set()
    assert outcomes.wait(1)
    scheduler.submit(chunk("b", [2], 1, last=True), outcomes.of("b again"))
    assert two.launched(2)
    one.turns[0].set()
    assert outcomes.wait(2)
    scheduler.submit(chunk("a", [3], 1, last=True), outcomes.of("a again"))
    assert one.launched(2)
    run(scheduler, one, two)
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


def test_gpu_lost_in_the_other_lane_answers_everybody_and_ends_the_process(
    scheduler, one, two, outcomes, ended
):
    two.lost.add(0)
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert one.launched(1)
    scheduler.submit(chunk("b", [1]), outcomes.of("b"))
    assert two.launched(1)
    two.turns[0].set()
    assert outcomes.wait(2)
    run(scheduler, one, two)
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
