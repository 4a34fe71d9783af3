"""What a reader is handed, and when."""

from __future__ import annotations

import dataclasses

import pytest
from coded_engine import CollectingReader, coded_request, coded_tokens

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.lm.job import MAX_GROUP, NOTHING, Job, Unread


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


def test_unread_time_counts_from_the_first_news_not_looked_at():
    job = make_job()
    assert job.unread_s(100.0) == 0.0
    job.put([1], now=5.0)
    job.put([2], now=8.0)
    assert job.unread_s(9.0) == 4.0
    job.take()
    assert job.unread_s(100.0) == 0.0


def test_whole_answer_waits_for_the_end_but_a_look_counts():
    job = make_job(streaming=False)
    job.put([1], now=0.0)
    assert job.take() == NOTHING
    assert job.unread_s(100.0) == 0.0


def test_error_comes_with_the_end():
    job = make_job()
    error = CosyVoiceError("broken")
    job.put([], 0.0, FinishReason.ERROR, error)
    assert job.take() == Unread([], FinishReason.ERROR, error)
