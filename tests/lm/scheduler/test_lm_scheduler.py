"""Requests through a scheduler whose engine tells whose tokens are whose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from coded_engine import (
    TIMEOUT_S,
    CodedEngine,
    CollectingReader,
    SelectiveCodedEngine,
    close_gate,
    coded_request,
    coded_tokens,
    open_gate,
    submit,
    submit_together,
    wait_for_step,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.scheduler.load_metrics import Load
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from eventually import eventually


@settings(max_examples=30)
@given(slots=st.integers(1, 4), lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_every_reader_gets_its_own_tokens_and_one_end(slots, lengths):
    engine = CodedEngine(slots)
    scheduler = Scheduler(lambda: engine, 100, lambda load: None)
    readers = [submit(scheduler, name, tokens) for name, tokens in enumerate(lengths)]
    scheduler.close()
    assert [reader.tokens for reader in readers] == [coded_tokens(*item) for item in enumerate(lengths)]
    assert all(reader.ends == [None] for reader in readers)
    assert all(set(reader.reasons[:-1]) <= {None} for reader in readers)
    assert all(reader.reason is FinishReason.LENGTH for reader in readers)
    assert engine.closed == 1


def test_requests_join_a_running_batch_and_leave_it_between_two_tokens(scheduler, engine):
    close_gate(engine)
    readers = [submit(scheduler, 1, 5)]
    wait_for_step(engine)
    readers += [submit(scheduler, 2, 2), submit(scheduler, 3, 3)]
    open_gate(engine)
    for reader in readers:
        reader.wait()
    assert engine.steps == [[1], [1, 2], [1, 2], [1, 3], [1, 3], [3]]


def steps_with_one_more(make_scheduler, request):
    """The engine after three requests that were under way when a fourth one came."""
    engine = SelectiveCodedEngine(slots=4)
    scheduler = make_scheduler(lambda: engine)
    close_gate(engine)
    readers = [submit(scheduler, name, 14) for name in (1, 2, 3)]
    wait_for_step(engine)
    readers.append(CollectingReader())
    scheduler.submit(request, readers[-1])
    open_gate(engine)
    for reader in readers:
        reader.wait()
    return engine


def test_requests_that_wait_for_first_tokens_step_twice_as_often_while_they_are_few(make_scheduler):
    engine = steps_with_one_more(make_scheduler, replace(coded_request(4, 14), first_tokens=6))
    begun = next(at for at, names in enumerate(engine.steps) if 4 in names)
    assert engine.steps[begun : begun + 6] == [[4], [1, 2, 3, 4]] * 3
    assert [4] not in engine.steps[begun + 6 :] or engine.steps[-1] == [4]


def test_requests_that_nobody_waits_for_have_no_steps_of_their_own(make_scheduler):
    unheard = replace(coded_request(4, 14), first_tokens=6, is_awaited=False)
    assert steps_with_one_more(make_scheduler, unheard).apart == 0


def test_all_step_together_where_most_wait_for_first_tokens(make_scheduler):
    engine = SelectiveCodedEngine(slots=4)
    scheduler = make_scheduler(lambda: engine)
    readers = []
    for name in (1, 2, 3):
        readers.append(CollectingReader())
        scheduler.submit(replace(coded_request(name, 9), first_tokens=9), readers[-1])
    for reader in readers:
        reader.wait()
    assert engine.apart == 0


def test_stream_is_told_its_tokens_while_more_of_them_are_drawn(scheduler, engine):
    gate = close_gate(engine)
    reader = submit(scheduler, 1, 900, "a")
    for _ in range(60):
        gate.release()
        wait_for_step(engine)
    eventually(lambda: len(reader.reasons) > 1, TIMEOUT_S)
    assert set(reader.reasons) == {None}
    scheduler.stop("a")
    open_gate(engine)
    assert reader.wait().reason is FinishReason.CANCELLED


def test_request_that_does_not_stream_gets_everything_at_once(scheduler):
    reader = CollectingReader()
    scheduler.submit(coded_request(1, 40, streaming=False), reader)
    assert reader.wait().groups == [coded_tokens(1, 40)]


def test_requests_join_as_many_at_a_time_as_one_pass_feeds(make_scheduler):
    engine = CodedEngine(slots=4, prefill_batch=1)
    scheduler = make_scheduler(lambda: engine)
    close_gate(engine)
    readers = [submit(scheduler, 1, 3)]
    wait_for_step(engine)
    readers += [submit(scheduler, name, 3) for name in (2, 3)]
    open_gate(engine)
    for reader in readers:
        reader.wait()
    assert engine.steps == [[1], [1, 2], [1, 2, 3], [2, 3], [3]]


def test_full_queue_refuses_one_more_and_serves_the_rest(make_scheduler, engine):
    close_gate(engine)
    scheduler = make_scheduler(lambda: engine, max_waiting=3)
    readers = [submit(scheduler, name, 2) for name in range(5)]
    with pytest.raises(OverloadedError, match="max_queue_size: 2 requests run and 3 wait; try again later"):
        submit(scheduler, 9, 2)
    open_gate(engine)
    assert [reader.wait().tokens for reader in readers] == [coded_tokens(name, 2) for name in range(5)]


def test_close_lets_running_and_waiting_requests_finish(make_scheduler, engine):
    scheduler = make_scheduler(lambda: engine)
    readers = [submit(scheduler, name, 20) for name in range(6)]
    scheduler.close()
    assert [reader.tokens for reader in readers] == [coded_tokens(name, 20) for name in range(6)]
    with pytest.raises(OverloadedError, match="the server is shutting down"):
        submit(scheduler, 9, 1)


def test_load_tells_slots_queue_and_tokens_and_returns_to_zero(scheduler, engine, loads):
    gate = close_gate(engine)
    readers = submit_together(scheduler, (1, 2, 3), 2)
    loads.wait_for(lambda load: (load.active, load.waiting) == (2, 1))
    gate.release()
    loads.wait_for(lambda load: load.tokens_per_step == 2)
    open_gate(engine)
    for reader in readers:
        reader.wait()
    load = loads.wait_for(lambda load: load[:5] == Load(0, 0, 0, 6, {FinishReason.LENGTH: 3})[:5])
    assert load.steps >= 4  # of two slots for three requests of two tokens
    assert load.step_s > 0


def test_tokens_are_counted_step_by_step_while_the_streams_run(scheduler, engine, loads):
    gate = close_gate(engine)
    readers = submit_together(scheduler, (1, 2), 900)
    loads.wait_for(lambda load: load.active == 2)
    counts = []
    for _ in range(3):
        gate.release()
        before = counts[-1] if counts else 0
        counts.append(loads.wait_for(lambda load, before=before: load.tokens > before).tokens)
    assert counts == [2, 4, 6]
    assert loads.wait_for(lambda load: load.tokens == 6).steps == 3
    assert not any(reader.ends for reader in readers)
    open_gate(engine)
