"""Urgent chunks beside batches of others: who computes what, in which order, and what is freed when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coded_gpu import Gpu, Part
from coded_waves import BLOCK, LOST_GPU_TOKEN, PROMPT, FakeClock, OneVoice, chunk, runtime

from cosyvoice_runtime.engine.batches import WaveScheduler, WaveService
from cosyvoice_runtime.engine.batches.job import URGENT_S
from cosyvoice_runtime.engine.runtimes.runtime import URGENT_BLOCKS, ConcurrentNetworks

ROWS = 2


@pytest.fixture
def large() -> Gpu:
    return Gpu()


@pytest.fixture
def small(large) -> Part:
    return Part(large)


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def scheduler(large, small, ended) -> Iterator[WaveScheduler]:
    service = WaveService(large, OneVoice(), idle_timeout_s=60.0, concurrent=[small])
    first = ConcurrentNetworks(small, ROWS, lambda: small, urgent=True)
    scheduler = WaveScheduler(
        service,
        runtime(large, 4, on_gpu=True, concurrent=[first]),
        16,
        1.0,
        clock=FakeClock(),
        end_process=ended.append,
    )
    yield scheduler
    large.finish_all()
    small.finish_all()
    scheduler.close()


@pytest.fixture
def busy(scheduler, large, outcomes) -> WaveScheduler:
    """With a turn under way on the large part."""
    scheduler.submit(chunk("busy", [0]), outcomes.of("busy"))
    assert large.launched(1)
    return scheduler


@pytest.fixture
def begun(busy, small, outcomes) -> WaveScheduler:
    """And with the first chunk of utterance a computed beside it."""
    busy.submit(chunk("a", [5]), outcomes.of("first"))
    assert small.launched(1)
    small.turns[0].set()
    assert outcomes.wait(1)
    return busy


def run(scheduler, *parts: Gpu) -> None:
    for part in parts:
        part.finish_all()
    scheduler.close()


def test_first_chunk_has_the_large_part_while_nothing_else_is_to_be_done(scheduler, large, small, outcomes):
    for turn, name in enumerate("ab"):
        scheduler.submit(chunk(name, [turn], last=True), outcomes.of(name))
        assert large.launched(turn + 1)
        large.turns[turn].set()
        assert outcomes.wait(turn + 1)
    assert small.turns == []
    assert outcomes.delivered == [("a", [0]), ("b", [1])]


def test_first_chunk_does_not_wait_for_a_turn_under_way(busy, large, small, outcomes):
    busy.submit(chunk("first", [7]), outcomes.of("first"))
    assert small.launched(1)
    small.turns[0].set()
    assert outcomes.wait(1)
    assert outcomes.delivered == [("first", [7])]
    run(busy, large, small)
    assert outcomes.delivered == [("first", [7]), ("busy", [0])]


def test_utterance_goes_on_only_when_its_turn_under_way_has_ended(busy, large, small, outcomes):
    busy.submit(chunk("busy", [1], 1, last=True), outcomes.of("later"))
    busy.submit(chunk("first", [7]), outcomes.of("first"))
    assert small.launched(1)
    run(busy, large, small)
    assert len(small.turns) == 1
    assert large.batches == [[[0]], [[1]]]


def test_second_chunk_is_launched_when_the_first_is_there(busy, large, small, outcomes):
    busy.submit(chunk("a", [5]), outcomes.of("first"))
    assert small.launched(1)
    busy.submit(chunk("a", [6], 1, last=True), outcomes.of("second"))
    large.turns[0].set()
    assert outcomes.wait(1)  # the large part is free, and may not have the second chunk yet
    busy.submit(chunk("other", [8], last=True), outcomes.of("other"))
    assert small.launched(1)
    assert large.batches == [[[0]]] or large.batches[1] == [[8]]
    run(busy, large, small)
    assert ("second", [6]) in outcomes.delivered
    assert outcomes.delivered.index(("first", [5])) < outcomes.delivered.index(("second", [6]))
    assert [6] in [row for part in (large, small) for batch in part.batches for row in batch]
    assert large.open_states == {state for state in large.open_states if not state.pending}


def test_later_chunk_that_is_due_does_not_wait_for_a_turn_of_others(begun, large, small, outcomes):
    begun.submit(chunk("a", [6], 1, last=True, cushion_s=URGENT_S / 2), outcomes.of("second"))
    assert small.launched(2)
    small.turns[1].set()
    assert outcomes.wait(2)
    assert outcomes.delivered == [("first", [5]), ("second", [6])]


def test_later_chunk_in_good_time_waits_for_a_turn(begun, large, small, outcomes):
    begun.submit(chunk("a", [6], 1, last=True, cushion_s=2 * URGENT_S), outcomes.of("second"))
    run(begun, large, small)
    assert small.batches == [[[5]]]
    assert large.batches == [[[0]], [[6]]]


def test_chunk_is_urgent_from_the_moment_at_which_its_listener_soon_runs_dry(large, small, outcomes):
    service = WaveService(large, OneVoice(), idle_timeout_s=60.0, concurrent=[small])
    urgent = ConcurrentNetworks(small, ROWS, lambda: small, urgent=True)
    scheduler = WaveScheduler(service, runtime(large, 4, on_gpu=True, concurrent=[urgent]), 16, 1.0)
    scheduler.submit(chunk("busy", [0]), outcomes.of("busy"))
    assert large.launched(1)
    scheduler.submit(chunk("a", [5], cushion_s=URGENT_S + 0.1), outcomes.of("a"))
    assert small.launched(1)  # though nothing else has happened
    run(scheduler, large, small)


def test_long_later_chunk_is_never_urgent(begun, large, small, outcomes):
    long = [1] * (URGENT_BLOCKS * BLOCK + 1)
    begun.submit(chunk("a", long, 1, last=True), outcomes.of("long"))
    begun.submit(chunk("b", [6], last=True), outcomes.of("b"))
    assert small.launched(2)
    run(begun, large, small)
    assert small.batches[1] == [[6]]


def test_long_first_chunk_that_is_due_is_computed_in_parts(busy, large, small, outcomes):
    long = [1] * (3 * BLOCK)
    busy.submit(chunk("a", long, last=True), outcomes.of("a"))
    run(busy, large, small)
    assert ("a", long) in outcomes.delivered
    assert all(len(row) <= URGENT_BLOCKS * BLOCK for batch in small.batches for row in batch)


def test_many_first_chunks_are_divided_between_both_parts(busy, large, small, outcomes):
    names = "abcde"
    for token, name in enumerate(names):
        busy.submit(chunk(name, [token], last=True), outcomes.of(name))
    assert small.launched(1)
    run(busy, large, small)
    assert sorted(outcomes.delivered[:]) == sorted(
        [*((name, [token]) for token, name in enumerate(names)), ("busy", [0])]
    )
    assert max(len(batch) for batch in small.batches) <= ROWS


def test_new_voice_is_never_computed_beside(busy, large, small, outcomes):
    busy.submit(chunk("new", [3], last=True, voice_key="new", prompt=PROMPT), outcomes.of("new"))
    busy.submit(chunk("known", [4], last=True), outcomes.of("known"))
    assert small.launched(1)
    run(busy, large, small)
    assert small.batches == [[[4]]]
    assert [[3]] in large.batches
    assert ("new", [3]) in outcomes.delivered


def test_what_a_cancelled_utterance_holds_is_free_when_its_turn_has_ended(busy, large, small, outcomes):
    busy.submit(chunk("gone", [5]), outcomes.of("gone"))
    assert small.launched(1)
    before = set(large.open_states)
    busy.submit(chunk("gone", cancel=True), outcomes.of("cancel"))
    large.turns[0].set()
    assert outcomes.wait(3)
    assert ("cancel", []) in outcomes.delivered
    assert large.open_states == before  # its turn still writes there
    small.turns[0].set()
    run(busy, large, small)
    assert large.open_states == set()


def test_gpu_lost_beside_a_turn_answers_everybody_and_ends_the_process(busy, large, small, outcomes, ended):
    small.lost.add(0)
    busy.submit(chunk("first", [1]), outcomes.of("first"))
    assert small.launched(1)
    small.turns[0].set()
    assert outcomes.wait(2)
    run(busy, large, small)
    assert {name for name, _ in outcomes.delivered} == {"busy", "first"}
    [reason] = ended
    assert "started anew" in reason


def test_gpu_lost_at_a_launch_beside_a_turn(busy, large, small, outcomes, ended):
    busy.submit(chunk("bad", [LOST_GPU_TOKEN]), outcomes.of("bad"))
    assert outcomes.wait(2)
    run(busy, large, small)
    assert len(ended) == 1


def test_later_parts_of_an_utterance_never_pass_its_first_where_chunks_are_empty(
    busy, large, small, outcomes
):
    busy.submit(chunk("a"), outcomes.of("opened"))
    assert small.launched(1)
    busy.submit(chunk("a", [6], last=True), outcomes.of("first"))
    large.turns[0].set()
    assert outcomes.wait(1)
    assert [[6]] not in large.batches
    run(busy, large, small)
    assert outcomes.delivered.index(("opened", [])) < outcomes.delivered.index(("first", [6]))


def test_first_chunks_beside_are_computed_whole_whatever_the_most_urgent_needs(busy, large, small, outcomes):
    small_one, large_one = list(range(5)), list(range(BLOCK + 5))
    with busy._wake:  # both are there before the first is looked at
        busy.submit(chunk("b", small_one, last=True), outcomes.of("b"))
        busy.submit(chunk("c", large_one, last=True), outcomes.of("c"))
    assert small.launched(1)
    run(busy, large, small)
    assert [row for batch in small.batches for row in batch] == [small_one, large_one]


def test_who_has_sound_for_a_while_waits_for_a_turn(busy, large, small, outcomes):
    busy.submit(chunk("segment", [4], last=True, cushion_s=3.0), outcomes.of("segment"))
    busy.submit(chunk("first", [5], last=True), outcomes.of("first"))
    assert small.launched(1)
    run(busy, large, small)
    assert small.batches == [[[5]]]


def test_voice_that_was_given_up_meanwhile_is_not_computed_beside(large, small):
    service = WaveService(large, OneVoice(), idle_timeout_s=60.0, concurrent=[small])
    with small:
        [outcome] = service.launch([chunk("a", [1], voice_key="new", prompt=PROMPT)], worker=1)()
    assert "try again" in str(outcome)
    assert large.open_states == set()
    service.close()
