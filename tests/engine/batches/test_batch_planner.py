"""Whose chunks a turn may compute: who waits for pages, and what turns teach."""

from __future__ import annotations

import dataclasses
import math
import threading
from contextlib import ExitStack, closing

import pytest
from coded_waves import BLOCK, CodedWaves, chunk, runtime
from spoken import chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import open_router
from cosyvoice_runtime.engine.batches.job import LaunchedBatch, Share, WaveJob
from cosyvoice_runtime.engine.batches.planner import LOOK_S, BatchPlanner
from cosyvoice_runtime.engine.batches.utterances import Speaker
from cosyvoice_runtime.engine.batches.worker import workers_of
from cosyvoice_runtime.engine.runtimes.runtime import ConcurrentNetworks
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.metrics import Metrics

NOW = 100.0
RICH_S = 1.0
"""What somebody has to play who is not in a hurry."""
TURN_S = 1.0
TIMEOUT_S = 120.0


class Full:
    """There are no pages for whoever would begin.

    Attributes:
        seen: who would.
        idle: whether nothing was under way when it was asked.
    """

    def __init__(self, soon_s: float = math.inf) -> None:
        self.seen: list[list[str]] = []
        self.idle: list[bool] = []
        self._soon_s = soon_s

    def held(self, new, now):
        self.seen.append(names(new))
        return set(new)

    def saving(self, jobs, speakers, unit_tokens, now, idle):
        self.idle.append(idle)
        known = {speaker.name for speaker in speakers()}
        return {each for each in jobs if each.chunk.utterance_id in known & {"saving"}}

    def soon_s(self) -> float:
        return self._soon_s


def job(name: str, cushion_s: float = 0.0, position: int = 50, arrived: float = NOW, **options) -> WaveJob:
    tokens = options.pop("tokens", BLOCK)
    made = chunk(name, [0] * tokens, position, cushion_s=cushion_s, **options)
    return WaveJob(made, lambda _: None, arrived + cushion_s)


def names(jobs) -> list[str]:
    return [each.chunk.utterance_id for each in jobs]


def planner(gpu: SharedGpu | None = None, openings: Full | None = None, on_gpu: bool = True) -> BatchPlanner:
    return BatchPlanner(lanes(), gpu or SharedGpu(), on_gpu, BLOCK, TURN_S, openings, speakers)


def lanes():
    """One for turns, one for two urgent chunks."""
    beside = ConcurrentNetworks(CodedWaves(), 2, ExitStack, urgent=True)
    return workers_of(runtime(CodedWaves(), 4, concurrent=[beside]), at_once=1)


def speakers() -> list[Speaker]:
    names = ("old", "saving", "poor")
    return [Speaker(name, number, pages=1, lost_pages=0) for number, name in enumerate(names)]


def divided(planner: BatchPlanner, jobs, new=(), ends=False):
    """Whom the lane for turns may have, and for how long."""
    found, again_s = planner.assign(jobs, new, 3, NOW, ends)
    return sorted(names(found.get(planner._workers[0], []))), again_s


def test_who_finds_no_pages_waits_and_looks_again():
    openings, new = Full(), job("new", position=0)
    turns, again_s = divided(planner(openings=openings), [new, job("old")], [new])
    assert turns == ["old"]
    assert again_s == LOOK_S
    assert openings.seen == [["new"]]


@pytest.mark.parametrize(("on_gpu", "expected"), [(True, ["old"]), (False, ["old", "saving"])])
def test_on_a_gpu_later_ones_leave_pages_to_earlier_ones(on_gpu, expected):
    turns, again_s = divided(planner(openings=Full(), on_gpu=on_gpu), [job("saving"), job("old")])
    assert turns == expected
    assert (again_s == LOOK_S) == on_gpu


def test_somebody_has_to_go_on_where_nothing_is_under_way():
    openings = Full()
    plan = planner(openings=openings)
    divided(plan, [job("old")])
    plan._workers[1].pace.launched(None, NOW, NOW)
    divided(plan, [job("old")])
    assert openings.idle == [True, False]


def test_at_the_end_nobody_waits_for_pages():
    openings, new = Full(), job("new", position=0)
    turns, _ = divided(planner(openings=openings), [new, job("saving")], [new], ends=True)
    assert turns == ["new", "saving"]
    assert openings.seen == [[]]  # and it is told that nobody waits


def test_urgent_chunks_that_find_no_row_in_their_lane_may_have_the_other():
    plan, now_due = planner(), [job(name) for name in "abc"]
    busy = plan._workers[0]
    busy.pace.launched(None, NOW, NOW)
    found, _ = plan.assign([*now_due, job("rich", RICH_S)], (), 3, NOW)
    assert [sorted(names(each)) for each in found.values()] == [["a", "b", "c"], ["c", "rich"]]


def test_new_voice_has_a_turn_of_its_own_in_lane_0_alone():
    plan = planner()
    turns, urgent = plan._workers
    new, known = job("new", position=0), job("known")
    new.needs_voice = True
    assert names(share.job for share in plan.shares(turns, [new, known], NOW)) == ["new"]
    assert names(share.job for share in plan.shares(urgent, [new, known], NOW)) == ["known"]
    assert plan.shares(urgent, [new], NOW) == []


@pytest.mark.parametrize(
    ("on_gpu", "order"), [(True, ["poor", "early", "late"]), (False, ["poor", "late", "early"])]
)
def test_where_pages_are_short_a_gpu_speaks_to_the_end_in_the_order_of_coming(on_gpu, order):
    early, late, poor = job("early", 9.0), job("late", 5.0), job("poor", 0.5)
    late.number, poor.number = 1, 2
    plan = planner(openings=Full(soon_s=1.0), on_gpu=on_gpu)
    assert names(plan.in_order([early, late, poor], NOW)) == order


def test_turns_of_all_but_urgent_chunks_and_new_voices_teach_how_long_they_may_be():
    plan = planner(on_gpu=False)
    turns, urgent = plan._workers

    def next_tokens() -> int:
        [share] = plan.shares(turns, [job("long", tokens=9 * BLOCK)], NOW)
        return share.tokens

    def launched(of_new_voice: bool = False) -> LaunchedBatch:
        return LaunchedBatch(
            plan.shares(turns, [job("long", tokens=9 * BLOCK)], NOW), list, of_new_voice, ExitStack()
        )

    assert next_tokens() == BLOCK
    plan.learn(urgent, launched(), TURN_S / 8)
    plan.learn(turns, launched(of_new_voice=True), TURN_S / 8)
    assert next_tokens() == BLOCK
    plan.learn(turns, launched(), TURN_S / 8)
    assert next_tokens() == 2 * BLOCK


def test_while_turns_are_long_those_come_along_who_would_run_dry_before_the_next_ends():
    plan = planner()
    turns, _ = plan._workers
    cushions_s = {"first": 1.0, "short": 0.6, "c": 10.0, "d": 10.0, "e": 10.0}
    waiting = [
        job(name, cushion_s, tokens=BLOCK if name == "short" else 2 * BLOCK)
        for name, cushion_s in cushions_s.items()
    ]

    def taken() -> list[str]:
        return names(share.job for share in plan.shares(turns, waiting, NOW))

    assert taken() == ["first", "c", "d", "e"]
    plan.learn(turns, LaunchedBatch([Share(waiting[0], 2 * BLOCK)], list, False, ExitStack()), 0.35)
    assert taken() == ["first", "short", "c", "d"]


def test_device_that_is_shared_is_held(settings, shared_token2wav, tmp_path):
    class Shared(SharedGpu):
        held = 0

        def turn(self):
            self.held += 1
            return super().turn()

    gpu = Shared()
    waves, both = [], threading.Event()

    def take(outcome: object) -> None:
        waves.append(outcome)
        if len(waves) == 2:
            both.set()

    prompt = prompt_tensors(shared_token2wav, 40)
    first, second = chunks_of("a", speech_tokens(50, 0), [25, 50], "v", prompt)
    with closing(open_router(settings, Metrics("token2wav", tmp_path), gpu)) as service:
        service.submit(first, take)
        service.submit(dataclasses.replace(second, cushion_s=2 * TIMEOUT_S), take)
        assert both.wait(TIMEOUT_S)
    assert gpu.held >= 2
