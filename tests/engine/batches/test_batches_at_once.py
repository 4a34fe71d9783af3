"""Turns that are launched before the last has ended: order, errors and cancels, with coded networks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from coded_gpu import TIMEOUT_S, Gpu
from coded_waves import BLOCK, LOST_GPU_TOKEN, NAN_TOKEN, FakeClock, OneVoice, chunk, runtime

from cosyvoice_runtime.engine.batches import WaveScheduler, WaveService
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu

WITHDRAWN = "the utterance was cancelled before this was computed"


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def scheduler(gpu, outcomes, ended) -> Iterator[WaveScheduler]:
    """Knows how long turns of one row take: no time, by its clock."""
    service = WaveService(gpu, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(
        service,
        runtime(gpu, 1, on_gpu=True, batches_at_once=2),
        16,
        1e-6,
        clock=FakeClock(),
        end_process=ended.append,
    )
    for turn, tokens in enumerate(([1], [1] * BLOCK)):
        scheduler.submit(chunk(f"known {turn}", tokens, last=True), outcomes.of("known"))
        assert gpu.launched(turn + 1)
        gpu.turns[turn].set()
        assert outcomes.wait(turn + 1)
    outcomes.delivered.clear()
    yield scheduler
    gpu.finish_all()
    scheduler.close()


def run(scheduler, gpu) -> None:
    gpu.finish_all()
    scheduler.close()


def test_next_turn_is_launched_before_the_last_has_ended_and_no_third(scheduler, gpu, outcomes):
    for token, name in enumerate("abcd"):
        scheduler.submit(chunk(name, [token], last=True), outcomes.of(name))
    assert gpu.launched(4)
    assert outcomes.delivered == []
    run(scheduler, gpu)
    assert outcomes.delivered == [("a", [0]), ("b", [1]), ("c", [2]), ("d", [3])]
    assert gpu.most == 2


def test_parts_of_one_chunk_are_under_way_together_and_come_out_whole(scheduler, gpu, outcomes):
    long = list(range(100, 100 + 3 * 2 * BLOCK))
    scheduler.submit(chunk("long", long, last=True), outcomes.of("long"))
    assert gpu.launched(3)
    gpu.turns[2].set()  # from which it is known how long such a part takes
    assert gpu.launched(5)
    run(scheduler, gpu)
    assert outcomes.delivered == [("long", long)]
    assert gpu.open_states == set()


def test_chunks_of_one_utterance_are_under_way_together_in_order(scheduler, gpu, outcomes):
    for position in range(3):
        scheduler.submit(chunk("a", [position], position, position == 2), outcomes.of(f"{position}"))
    assert gpu.launched(4)
    run(scheduler, gpu)
    assert outcomes.delivered == [("0", [0]), ("1", [1]), ("2", [2])]


def test_error_found_at_the_end_ends_the_utterance_though_more_of_it_is_under_way(scheduler, gpu, outcomes):
    scheduler.submit(chunk("bad", [NAN_TOKEN]), outcomes.of("bad"))
    scheduler.submit(chunk("bad", [2], 1), outcomes.of("later"))
    assert gpu.launched(4)
    scheduler.submit(chunk("good", [3], last=True), outcomes.of("good"))
    run(scheduler, gpu)
    errors = dict(outcomes.delivered)
    assert errors["bad"].startswith("vocoder: NaN")
    assert "ended before this was computed" in errors["later"]
    assert errors["good"] == [3]
    assert gpu.open_states == set()


def test_cancelled_name_is_used_again_while_the_old_utterance_is_under_way(scheduler, gpu, outcomes):
    scheduler.submit(chunk("name", [1], last=True), outcomes.of("old"))
    assert gpu.launched(3)
    scheduler.submit(chunk("name", cancel=True), outcomes.of("cancel"))
    assert outcomes.wait(2)
    assert outcomes.delivered == [("old", WITHDRAWN), ("cancel", [])]
    scheduler.submit(chunk("name", [5]), outcomes.of("new"))
    assert gpu.launched(4)
    scheduler.submit(chunk("name", [6], 1, last=True), outcomes.of("newer"))
    run(scheduler, gpu)
    assert outcomes.delivered[2:] == [("new", [5]), ("newer", [6])]
    assert gpu.open_states == set()


def test_gpu_lost_during_a_turn_answers_everybody_and_ends_the_process(scheduler, gpu, outcomes, ended):
    gpu.lost.add(2)
    for name in "abc":
        scheduler.submit(chunk(name, [1], last=True), outcomes.of(name))
    assert gpu.launched(4)
    gpu.turns[2].set()
    assert outcomes.wait(3)
    assert [name for name, _ in outcomes.delivered] == ["a", "b", "c"]
    assert len({text for _, text in outcomes.delivered}) == 1
    run(scheduler, gpu)
    [reason] = ended
    assert "started anew" in reason


def test_gpu_lost_at_a_launch_answers_those_of_the_turn_before_it_too(scheduler, gpu, outcomes, ended):
    scheduler.submit(chunk("before", [1], last=True), outcomes.of("before"))
    assert gpu.launched(3)
    scheduler.submit(chunk("bad", [LOST_GPU_TOKEN], last=True), outcomes.of("bad"))
    run(scheduler, gpu)
    assert dict(outcomes.delivered).keys() == {"before", "bad"}
    assert len(ended) == 1


def test_scheduler_that_closes_does_not_wait_for_a_thread_that_has_died(gpu, outcomes, ended):
    gpu.lost.add(0)
    service = WaveService(gpu, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(
        service, runtime(gpu, 1, on_gpu=True, batches_at_once=2), 16, 1.0,
        clock=FakeClock(), end_process=ended.append,
    )  # fmt: skip
    for name in "abc":
        scheduler.submit(chunk(name, [1], last=True), outcomes.of(name))
    assert gpu.launched(1)
    closing = threading.Thread(target=scheduler.close, daemon=True)
    closing.start()
    gpu.finish_all()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()
    assert {name for name, _ in outcomes.delivered} == {*"abc"}
    assert len(ended) == 1


def test_gpu_is_held_from_a_turns_launch_to_its_end(gpu, outcomes):
    held: list[int] = [0]

    class Held(SharedGpu):
        @contextmanager
        def turn(self) -> Iterator[None]:
            held.append(held[-1] + 1)
            yield
            held.append(held[-1] - 1)

    service = WaveService(gpu, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(
        service, runtime(gpu, 1, on_gpu=True, batches_at_once=2), 16, 1.0, Held(), clock=FakeClock()
    )
    for turn, name in enumerate("abc"):
        scheduler.submit(chunk(name, [1], last=True), outcomes.of(name))
        if not turn:
            assert gpu.launched(1)
            gpu.turns[0].set()
            assert outcomes.wait(1)
    assert gpu.launched(3)
    assert held == [0, 1, 0, 1, 2]
    run(scheduler, gpu)
    assert held == [0, 1, 0, 1, 2, 1, 0]
