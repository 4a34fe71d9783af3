"""What a reader is handed, and when."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Iterator

import pytest
from coded_engine import TIMEOUT_S, CollectingReader, coded_request, coded_tokens
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.scheduler.job import LOOK_S, NOTHING, Delivery, Job, Unread
from cosyvoice_runtime.lm.scheduler.token_groups import MAX_GROUP, MOST_SILENCE


def make_job(**fields) -> Job:
    request = coded_request(1, 1, streaming=True)
    return Job(dataclasses.replace(request, **fields), CollectingReader())


@pytest.fixture
def groups() -> list[list[int]]:
    """What leaves when the reader looks after each of 200 tokens."""
    job = make_job()
    groups = []
    for token in coded_tokens(1, 200):
        job.put([token], now=0.0)
        groups.append(list(job.take().tokens))
    return [group for group in groups if group]


def test_first_tokens_leave_one_by_one(groups):
    assert [len(group) for group in groups[:4]] == [1] * 4


def test_first_group_is_as_large_as_the_reader_wants():
    job = make_job(first_tokens=23)
    for token in coded_tokens(1, 22):
        job.put([token], now=0.0)
        assert job.take() == NOTHING
    job.put([7], now=0.0)
    assert job.take().tokens == [*coded_tokens(1, 22), 7]
    job.put([8], now=0.0)
    assert job.take() == NOTHING


def test_what_its_reader_gets_first_is_there_before_the_reader_has_it():
    job = make_job(first_tokens=2)
    seen = []
    for token in coded_tokens(1, 2):
        job.put([token], now=0.0)
        seen.append((job.lacks_first, job.awaits_first))
    job.take()
    assert [*seen, (job.lacks_first, job.awaits_first)] == [(True, True), (False, True), (False, False)]


def test_end_comes_before_the_first_group_is_full():
    job = make_job(first_tokens=23)
    job.put([7], 0.0, FinishReason.STOP)
    assert job.take() == Unread([7], FinishReason.STOP, None)


def test_groups_grow_up_to_a_limit(groups):
    sizes = [len(group) for group in groups]
    assert sizes == sorted(sizes)
    assert sizes[-1] == MAX_GROUP


def test_groups_are_the_tokens_in_order(groups):
    tokens = [token for group in groups for token in group]
    assert tokens == coded_tokens(1, len(tokens))


def told_at(job: Job, tokens: list[int]) -> list[int]:
    """Numbers of tokens at which the reader is told, looks at once and gets all of them."""
    numbers = []
    for number, token in enumerate(tokens, 1):
        if job.put([token], now=0.0):
            assert job.take().tokens[-1] == token
            numbers.append(number)
    return numbers


def test_groups_of_a_wanted_size_leave_with_their_last_token():
    job = make_job(first_tokens=23, group_tokens=25)
    assert told_at(job, coded_tokens(1, 150)) == [23, 48, 73, 98, 123, 148]
    assert job.put([7], 0.0, FinishReason.STOP)
    assert len(job.take().tokens) == 3


def test_group_that_came_late_does_not_delay_the_next():
    job = make_job(first_tokens=23, group_tokens=25)
    job.put(coded_tokens(1, 23), now=0.0)
    job.put(coded_tokens(1, 30), now=0.0)
    assert len(job.take().tokens) == 53
    assert told_at(job, coded_tokens(2, 50)) == [73 - 53, 98 - 53]
    job.put(coded_tokens(1, 50), now=0.0)
    assert len(job.take().tokens) == 55
    assert told_at(job, coded_tokens(2, 25)) == [173 - 153]


def test_pause_brings_what_is_there_and_the_next_group_ends_where_it_would_have():
    job = make_job(first_tokens=5, group_tokens=10)
    assert told_at(job, coded_tokens(1, 18)) == [5, 15]
    job.pause()
    assert job.take().tokens == coded_tokens(1, 18)[15:]
    assert told_at(job, coded_tokens(2, 20)) == [25 - 18, 35 - 18]


def test_what_comes_before_the_first_group_waits_for_it_in_a_pause_too():
    job = make_job(first_tokens=5, group_tokens=10)
    job.put([1, 2], 0.0)
    job.pause()
    assert job.take() == NOTHING


def test_silence_that_the_reader_drops_is_in_no_group():
    job = make_job(first_tokens=8, group_tokens=10, silent_tokens=frozenset({0}))
    assert told_at(job, [1, 1, *[0] * 9, *range(1, 30)]) == [12, 22, 32]


def test_endless_silence_leaves_now_and_then():
    job = make_job(first_tokens=8, group_tokens=10, silent_tokens=frozenset({0}))
    assert told_at(job, [0] * 120) == [5 + MOST_SILENCE, 5 + 2 * MOST_SILENCE]
    assert told_at(job, coded_tokens(1, 20)) == [3, 13]


@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_no_token_is_lost_or_late_however_they_come(first, size, events):
    job = make_job(first_tokens=first, group_tokens=size)
    came, got, told = 0, [], False
    for count, looks in events:
        told |= job.put(list(range(came, came + count)), now=0.0)
        came += count
        wanted = first if len(got) < first else first + size * ((len(got) - first) // size + 1)
        assert told == (came >= wanted)
        if looks and told:
            got += job.take().tokens
            told = False
    job.put([], 0.0, FinishReason.STOP)
    assert got + list(job.take().tokens) == list(range(came))


def test_slow_reader_gets_everything_that_came_meanwhile():
    job = make_job()
    for token in coded_tokens(1, 50):
        job.put([token], now=0.0)
    assert job.take().tokens == coded_tokens(1, 50)


def test_end_brings_the_rest():
    job = make_job()
    job.put(coded_tokens(1, 30), now=0.0)
    job.take()
    job.put([7], now=0.0)
    assert job.take() == NOTHING
    job.put([8], 0.0, FinishReason.STOP)
    assert job.take() == Unread([7, 8], FinishReason.STOP, None)


def test_reader_is_told_once_until_it_looks():
    job = make_job()
    assert [job.put([1], 0.0), job.put([2], 0.0)] == [True, False]
    job.take()
    assert job.put([3], 0.0)


def test_reader_is_told_of_whole_groups_and_of_the_end_alone():
    job = make_job(first_tokens=4)
    told = []
    for token in coded_tokens(1, 30):
        told.append(job.put([token], now=0.0))
        if told[-1]:
            job.take()
    assert [index for index, was in enumerate(told, 1) if was][:5] == [4, 6, 8, 11, 14]
    assert job.put([], 0.0, FinishReason.STOP)


def test_reader_of_a_whole_answer_is_told_of_its_end_alone():
    job = make_job(streaming=False)
    assert not any(job.put([token], 0.0) for token in coded_tokens(1, 30))
    assert job.put([7], 0.0, FinishReason.STOP)


def test_unread_time_counts_from_the_first_news_not_looked_at():
    job = make_job()
    assert job.unread_s(100.0) == 0.0
    job.put([1], now=5.0)
    job.put([2], now=8.0)
    assert job.unread_s(9.0) == 4.0
    job.take()
    assert job.unread_s(100.0) == 0.0


def test_reader_for_whom_nothing_is_there_is_not_slow():
    for job in (make_job(streaming=False), make_job(first_tokens=2)):
        job.put([1], now=0.0)
        assert job.take() == NOTHING
        job.put([], now=1.0)
        assert job.unread_s(100.0) == 0.0


def test_error_comes_with_the_end():
    job = make_job()
    error = CosyVoiceError("broken")
    job.put([], 0.0, FinishReason.ERROR, error)
    assert job.take() == Unread([], FinishReason.ERROR, error)


class Watched:
    """A delivery with what it calls: jobs that nobody reads, and a permit for each look round."""

    def __init__(self) -> None:
        self.left: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.looks = threading.Semaphore(0)
        self.delivery = Delivery(self.left.put, self.looks.release)

    def wait_for_look(self) -> None:
        assert self.looks.acquire(timeout=TIMEOUT_S)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.delivery.close()


@pytest.mark.parametrize("fields", [{"streaming": False}, {"first_tokens": 23}, {}])
def test_reader_that_leaves_is_noticed_though_no_token_comes(watched, fields):
    job = make_job(**fields)
    job.handle = 1
    watched.delivery.tell(job)
    watched.wait_for_look()
    assert watched.left.empty()
    job.reader.gone = True
    assert watched.left.get(timeout=TIMEOUT_S) is job
    job.put([], 0.0, FinishReason.CANCELLED)
    watched.delivery.tell(job)
    job.reader.wait()


def test_looks_go_on_while_there_are_requests_and_end_after_the_last(watched):
    job = make_job()
    watched.delivery.tell(job)
    for _ in range(4):
        watched.wait_for_look()
    job.put([7], 0.0, FinishReason.STOP)
    watched.delivery.tell(job)
    job.reader.wait()
    watched.wait_for_look()
    while watched.looks.acquire(timeout=10 * LOOK_S):
        pass  # it would never end if they went on


def test_changes_are_looked_at_before_the_delivery_closes():
    watched, job = Watched(), make_job()
    job.put([7], 0.0, FinishReason.STOP)
    watched.delivery.tell(job)
    watched.wait_for_look()
    watched.delivery.close()
    assert job.reader.tokens == [7]
    assert watched.looks.acquire(blocking=False)
