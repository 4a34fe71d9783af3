"""First chunks that wait for no other: a lane is for them alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from coded_gpu import Gpu, Part
from coded_waves import OneVoice, chunk, runtime

from cosyvoice_runtime.engine.batches import WaveScheduler, WaveService
from cosyvoice_runtime.engine.batches.job import URGENT_S
from cosyvoice_runtime.engine.batches.worker import Worker
from cosyvoice_runtime.engine.runtimes.runtime import ConcurrentNetworks
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from eventually import eventually

ROWS = 2


class SpeechLM(SharedGpu):
    """Notes which first chunks are computed where its steps are.

    Attributes:
        alone: utterances in progress when each first chunk began that is computed where steps are.
        beside: first chunks that are being computed there.
    """

    def __init__(self) -> None:
        self.alone: list[int] = []
        self.beside = 0

    @contextmanager
    def first_chunk(self, utterances: int) -> Iterator[None]:
        self.alone.append(utterances)
        self.beside += 1
        try:
            yield
        finally:
            self.beside -= 1


class Lanes:
    """A part for turns, and two lanes of urgent chunks."""

    def __init__(self) -> None:
        self.turns = Gpu()
        self.urgent, self.first = Part(self.turns), Part(self.turns)
        self.speech_lm = SpeechLM()
        beside = [self.urgent, self.first]
        service = WaveService(self.turns, OneVoice(), idle_timeout_s=60.0, concurrent=beside)
        self.scheduler = WaveScheduler(
            service, runtime(self.turns, 4, on_gpu=True, concurrent=[
                ConcurrentNetworks(self.urgent, ROWS, lambda: self.urgent, urgent=True),
                ConcurrentNetworks(self.first, ROWS, lambda: self.first, urgent=True),
            ]), 16, 1.0, self.speech_lm,
        )  # fmt: skip

    def end(self) -> None:
        for lane in (self.turns, self.urgent, self.first):
            lane.finish_all()
        self.scheduler.close()


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    lanes = Lanes()
    yield lanes
    lanes.end()


@pytest.fixture
def busy(lanes, outcomes) -> Lanes:
    """With a turn under way, and a urgent one beside it."""
    lanes.scheduler.submit(chunk("busy", [0]), outcomes.of("busy"))
    assert lanes.turns.launched(1)
    lanes.scheduler.submit(chunk("a", [1]), outcomes.of("a"))
    assert lanes.urgent.launched(1)
    return lanes


def test_first_chunk_does_not_wait_for_another_one(busy, outcomes):
    busy.scheduler.submit(chunk("b", [2]), outcomes.of("b"))
    assert busy.first.launched(1)
    busy.end()
    assert busy.first.batches == [[[2]]]


def test_steps_are_told_of_first_chunks_beside_them_alone(busy, outcomes):
    assert busy.speech_lm.alone == [1]  # not of the one in the part for turns
    assert busy.speech_lm.beside == 1
    busy.urgent.turns[0].set()
    assert outcomes.wait(1)
    assert busy.speech_lm.beside == 0
    busy.scheduler.submit(chunk("a", [2], 1, cushion_s=URGENT_S / 2), outcomes.of("later"))
    assert busy.urgent.launched(2)
    busy.end()
    assert busy.speech_lm.alone == [1]


def test_steps_are_told_of_a_first_chunk_that_is_not_the_most_urgent_of_its_turn(busy, outcomes):
    busy.scheduler.submit(chunk("b", [2]), outcomes.of("b"))
    assert busy.first.launched(1)
    busy.first.turns[0].set()
    assert outcomes.wait(1)
    busy.scheduler.submit(chunk("c", [3]), outcomes.of("c"))
    assert busy.first.launched(2)
    busy.scheduler.submit(chunk("b", [4], 1), outcomes.of("more of b"))
    busy.scheduler.submit(chunk("d", [5]), outcomes.of("d"))
    told = len(busy.speech_lm.alone)
    eventually(lambda: not any("b" in lane.utterances for lane in busy.scheduler._workers))
    busy.urgent.turns[0].set()
    assert busy.urgent.launched(2)
    busy.end()
    assert busy.urgent.batches[1] == [[4], [5]]
    assert len(busy.speech_lm.alone) == told + 1


def test_steps_go_on_if_a_first_chunk_can_not_be_launched_beside_them(lanes, outcomes, monkeypatch):
    lanes.scheduler.submit(chunk("busy", [0]), outcomes.of("busy"))
    assert lanes.turns.launched(1)

    def fails(*_: object) -> None:
        raise RuntimeError("told to fail")

    monkeypatch.setattr(Worker, "begin", fails)
    lanes.scheduler.submit(chunk("a", [1]), outcomes.of("a"))
    assert outcomes.wait(1)
    monkeypatch.undo()
    lanes.end()
    assert (lanes.speech_lm.alone, lanes.speech_lm.beside) == ([1], 0)


def test_later_chunk_waits_for_a_lane_that_is_not_for_first_ones_alone(busy, outcomes):
    busy.scheduler.submit(chunk("b", [2]), outcomes.of("b"))
    assert busy.first.launched(1)
    busy.first.turns[0].set()
    assert outcomes.wait(1)
    busy.scheduler.submit(chunk("b", [3], 1, cushion_s=URGENT_S / 2), outcomes.of("later"))
    busy.scheduler.submit(chunk("c", [4]), outcomes.of("c"))
    assert busy.first.launched(2)
    busy.end()
    assert busy.first.batches == [[[2]], [[4]]]


def test_first_chunks_that_find_no_room_beside_wait_for_the_next_lane(busy, outcomes):
    for token, name in enumerate("bcdefg", 2):
        busy.scheduler.submit(chunk(name, [token]), outcomes.of(name))
    assert busy.first.launched(1)
    busy.end()
    rows = [row for part in (busy.urgent, busy.first, busy.turns) for batch in part.batches for row in batch]
    assert sorted(rows) == [[token] for token in range(8)]
    assert {name for name, _ in outcomes.delivered} == {*"abcdefg", "busy"}
