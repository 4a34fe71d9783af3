"""A GPU divided one way for few utterances and another way for many: which lanes have turns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coded_gpu import Gpu, Part
from coded_waves import PROMPT, FakeClock, OneVoice, chunk, runtime

from cosyvoice_runtime.engine.batches import WaveScheduler, WaveService
from cosyvoice_runtime.engine.runtimes.runtime import ConcurrentNetworks
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from eventually import eventually

FEW = 2
"""Utterances in progress up to which they are few here."""


class Divided(SharedGpu):
    """Four lanes of one GPU: for turns and for first chunks, of many and of few."""

    def __init__(self) -> None:
        self.many = Gpu()
        self.first_of_many, self.of_few, self.first_of_few = (Part(self.many) for _ in range(3))
        self.lanes = [self.many, self.first_of_many, self.of_few, self.first_of_few]
        self.counts: list[int] = []
        self.most_few = FEW

    def beside(self) -> list[ConcurrentNetworks]:
        return [
            ConcurrentNetworks(self.first_of_many, 2, lambda: self.first_of_many, urgent=True, of_few=False),
            ConcurrentNetworks(self.of_few, 4, lambda: self.of_few, of_few=True),
            ConcurrentNetworks(self.first_of_few, 2, lambda: self.first_of_few, urgent=True, of_few=True),
        ]

    def few(self, utterances: int) -> bool:
        self.counts.append(utterances)
        return utterances <= self.most_few


@pytest.fixture
def gpu() -> Divided:
    return Divided()


@pytest.fixture
def scheduler(gpu) -> Iterator[WaveScheduler]:
    beside = [lane for lane in gpu.lanes if lane is not gpu.many]
    service = WaveService(gpu.many, OneVoice(), idle_timeout_s=60.0, concurrent=beside)
    scheduler = WaveScheduler(
        service, runtime(gpu.many, 4, on_gpu=True, of_few=False, concurrent=gpu.beside()), 16, 1.0, gpu,
        clock=FakeClock(), end_process=lambda _: None,
    )  # fmt: skip
    yield scheduler
    end(scheduler, gpu)


def end(scheduler: WaveScheduler, gpu: Divided) -> None:
    for lane in gpu.lanes:
        lane.finish_all()
    scheduler.close()


def opened(scheduler, gpu, outcomes, names: str, lane: Gpu) -> None:
    """Utterances with their first chunk behind them, one after the other."""
    for token, name in enumerate(names):
        scheduler.submit(chunk(name, [token]), outcomes.of(name))
        assert lane.launched(token + 1)
        lane.turns[token].set()
        assert outcomes.wait(token + 1)


def test_few_utterances_have_their_lanes(scheduler, gpu, outcomes):
    scheduler.submit(chunk("a", [0]), outcomes.of("a"))
    assert gpu.of_few.launched(1)
    scheduler.submit(chunk("b", [1], last=True), outcomes.of("b"))
    assert gpu.first_of_few.launched(1)
    end(scheduler, gpu)
    assert sorted(outcomes.delivered) == [("a", [0]), ("b", [1])]
    assert gpu.many.turns == gpu.first_of_many.turns == []


def test_many_utterances_have_theirs(scheduler, gpu, outcomes):
    opened(scheduler, gpu, outcomes, "abc", gpu.of_few)  # three: the next ones are many
    scheduler.submit(chunk("a", [7], 1), outcomes.of("more"))
    assert gpu.many.launched(1)
    scheduler.submit(chunk("d", [8]), outcomes.of("d"))
    assert gpu.first_of_many.launched(1)
    end(scheduler, gpu)
    assert sorted(outcomes.delivered[3:]) == [("d", [8]), ("more", [7])]
    assert len(gpu.of_few.turns) == 3
    assert gpu.first_of_few.turns == []


def test_utterance_whose_turn_is_under_way_goes_on_when_it_has_ended(scheduler, gpu, outcomes):
    opened(scheduler, gpu, outcomes, "ab", gpu.of_few)
    scheduler.submit(chunk("a", [2], 1), outcomes.of("slow"))
    assert gpu.of_few.launched(3)
    scheduler.submit(chunk("c", [3]), outcomes.of("c"))
    assert gpu.first_of_few.launched(1)  # which makes them many
    gpu.first_of_few.turns[0].set()
    assert outcomes.wait(3)
    scheduler.submit(chunk("a", [4], 2, last=True, cushion_s=3.0), outcomes.of("next"))
    scheduler.submit(chunk("b", [5], 1, last=True, cushion_s=3.0), outcomes.of("other"))
    assert gpu.many.launched(1)
    gpu.many.turns[0].set()
    assert outcomes.wait(4)
    assert gpu.many.batches == [[[5]]]  # a's last turn is still under way, in the lane of few
    end(scheduler, gpu)
    assert sorted(outcomes.delivered[3:]) == [("next", [4]), ("other", [5]), ("slow", [2])]


def test_first_chunk_is_beside_a_turn_of_the_division_that_ends(scheduler, gpu, outcomes):
    opened(scheduler, gpu, outcomes, "abc", gpu.of_few)
    scheduler.submit(chunk("a", [4], 1), outcomes.of("slow"))
    assert gpu.many.launched(1)
    gpu.most_few = 8  # few again, and a turn of many is under way
    scheduler.submit(chunk("d", [5], last=True), outcomes.of("d"))
    assert gpu.first_of_few.launched(1)
    end(scheduler, gpu)
    assert len(gpu.of_few.turns) == 3


def test_new_voice_is_computed_in_the_lane_that_can_however_few_speak(scheduler, gpu, outcomes):
    scheduler.submit(chunk("new", [3], last=True, voice_key="new", prompt=PROMPT), outcomes.of("new"))
    assert gpu.many.launched(1)
    scheduler.submit(chunk("known", [4], last=True), outcomes.of("known"))
    assert gpu.first_of_few.launched(1)  # the other lane's multiprocessors are partly the new voice's
    end(scheduler, gpu)
    assert sorted(outcomes.delivered) == [("known", [4]), ("new", [3])]
    assert gpu.many.batches == [[[3]]]


def test_cancel_is_answered_whichever_lanes_are_at_work(scheduler, gpu, outcomes):
    opened(scheduler, gpu, outcomes, "ab", gpu.of_few)
    scheduler.submit(chunk("a", [], 0, cancel=True), outcomes.of("cancel"))
    assert outcomes.wait(3)
    end(scheduler, gpu)
    assert outcomes.delivered[2][0] == "cancel"


def test_gpu_is_divided_for_the_utterances_in_progress(scheduler, gpu, outcomes):
    opened(scheduler, gpu, outcomes, "abc", gpu.of_few)
    eventually(lambda: {0, 1, 2, 3} <= set(gpu.counts))
    end(scheduler, gpu)
