"""What a reader is handed, and when."""

from __future__ import annotations

import dataclasses

import pytest
from coded_engine import CollectingReader, coded_request, coded_tokens
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.lm.scheduler.job import MAX_GROUP, MOST_SILENCE, Job


def make_job(**fields) -> Job:
    request = coded_request(1, 1, streaming=True)
    return Job(dataclasses.replace(request, **fields), CollectingReader())


def sent(job: Job) -> list[int]:
    """The tokens that leave now."""
    job.send()
    return job.reader.groups[-1]


@pytest.fixture
def groups() -> list[list[int]]:
    """What leaves of 200 tokens that come one by one."""
    job = make_job()
    groups = []
    for token in coded_tokens(1, 200):
        job.add([token])
        if job.has_group:
            groups.append(sent(job))
    return groups


def test_first_tokens_leave_one_by_one(groups):
    assert [len(group) for group in groups[:4]] == [1] * 4


def test_first_group_is_as_large_as_the_reader_wants():
    job = make_job(first_tokens=23)
    for token in coded_tokens(1, 22):
        job.add([token])
        assert not job.has_group
    job.add([7])
    assert job.has_group
    assert sent(job) == [*coded_tokens(1, 22), 7]
    job.add([8])
    assert not job.has_group


def test_groups_of_speech_that_goes_on_end_where_they_would_have_ended():
    prompt = dataclasses.replace(coded_request(1, 1).prompt, spoken=[5] * 30)
    job = make_job(prompt=prompt, first_tokens=23, group_tokens=10)
    assert told_at(job, coded_tokens(1, 30)) == [3, 13, 23]


def test_what_its_reader_gets_first_is_there_before_the_reader_has_it():
    job = make_job(first_tokens=2)
    seen = []
    for token in coded_tokens(1, 2):
        job.add([token])
        seen.append((job.lacks_first, job.awaits_first))
    sent(job)
    assert [*seen, (job.lacks_first, job.awaits_first)] == [(True, True), (False, True), (False, False)]


def test_groups_grow_up_to_a_limit(groups):
    sizes = [len(group) for group in groups]
    assert sizes == sorted(sizes)
    assert sizes[-1] == MAX_GROUP


def test_groups_are_the_tokens_in_order(groups):
    tokens = [token for group in groups for token in group]
    assert tokens == coded_tokens(1, len(tokens))


def told_at(job: Job, tokens: list[int]) -> list[int]:
    """Numbers of tokens at which the reader gets all that are there."""
    numbers = []
    for number, token in enumerate(tokens, 1):
        job.add([token])
        if job.has_group:
            assert sent(job)[-1] == token
            numbers.append(number)
    return numbers


def test_groups_of_a_wanted_size_leave_with_their_last_token():
    job = make_job(first_tokens=23, group_tokens=25)
    assert told_at(job, coded_tokens(1, 150)) == [23, 48, 73, 98, 123, 148]
    job.add([7])
    assert len(sent(job)) == 3


def test_group_that_came_late_does_not_delay_the_next():
    job = make_job(first_tokens=23, group_tokens=25)
    job.add(coded_tokens(1, 53))
    assert len(sent(job)) == 53
    assert told_at(job, coded_tokens(2, 50)) == [73 - 53, 98 - 53]
    job.add(coded_tokens(1, 50))
    assert len(sent(job)) == 55
    assert told_at(job, coded_tokens(2, 25)) == [173 - 153]


def test_pause_brings_what_is_there_and_the_next_group_ends_where_it_would_have():
    job = make_job(first_tokens=5, group_tokens=10)
    assert told_at(job, coded_tokens(1, 18)) == [5, 15]
    assert job.has_rest
    assert sent(job) == coded_tokens(1, 18)[15:]
    assert told_at(job, coded_tokens(2, 20)) == [25 - 18, 35 - 18]


def test_what_comes_before_the_first_group_waits_for_it_in_a_pause_too():
    job = make_job(first_tokens=5, group_tokens=10)
    job.add([1, 2])
    assert not job.has_rest


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
    came, got = 0, []
    for count, looks in events:
        job.add(list(range(came, came + count)))
        came += count
        wanted = first if len(got) < first else first + size * ((len(got) - first) // size + 1)
        assert job.has_group == (came >= wanted)
        if looks and job.has_group:
            got += sent(job)
    assert got + sent(job) == list(range(came))


def test_reader_of_a_whole_answer_gets_no_group():
    job = make_job(streaming=False)
    job.add(coded_tokens(1, 30))
    assert not job.has_group
    assert not job.has_rest
    assert sent(job) == coded_tokens(1, 30)
