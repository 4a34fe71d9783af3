"""Requests that are stopped, waiting or in a batch."""

from __future__ import annotations

import pytest
from coded_engine import (
    ENDLESS,
    CodedEngine,
    close_gate,
    coded_tokens,
    open_gate,
    submit,
    submit_together,
    wait_for_step,
)

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason


def test_stop_frees_the_slot_within_one_step(scheduler, engine):
    gate = close_gate(engine)
    stopped, neighbour = submit(scheduler, 1, 900, "a"), submit(scheduler, 2, 6)
    wait_for_step(engine)
    gate.release()
    wait_for_step(engine)
    scheduler.stop("a")
    waiting = submit(scheduler, 3, 2)
    open_gate(engine)
    assert stopped.wait().reason is FinishReason.CANCELLED
    assert stopped.ends == [None]
    assert stopped.tokens == coded_tokens(1, len(stopped.tokens))
    assert neighbour.wait().tokens == coded_tokens(2, 6)
    assert waiting.wait().tokens == coded_tokens(3, 2)
    assert max(index for index, names in enumerate(engine.steps) if 1 in names) <= 2


def test_requests_stopped_while_one_is_prefilled_are_not_prefilled(make_scheduler):
    engine = CodedEngine(slots=4, prefill_batch=1)
    scheduler = make_scheduler(lambda: engine)
    gate = close_gate(engine)
    good = submit(scheduler, 1, 4)
    wait_for_step(engine)
    left = [submit(scheduler, name, ENDLESS, str(name)) for name in (2, 3, 4)]
    gate.release()
    wait_for_step(engine)
    for name in (2, 3, 4):
        scheduler.stop(str(name))
    next_one = submit(scheduler, 5, 2)
    open_gate(engine)
    assert [reader.wait().reason for reader in left] == [FinishReason.CANCELLED] * 3
    assert good.wait().tokens == coded_tokens(1, 4)
    assert next_one.wait().tokens == coded_tokens(5, 2)
    assert engine.steps == [[1], [1, 2], [1, 5], [1, 5]]


def test_stop_takes_a_waiting_request_out_of_the_queue(scheduler, engine, loads):
    close_gate(engine)
    running = submit_together(scheduler, (1, 2), 3)
    waiting = submit(scheduler, 3, 3, "late")
    loads.wait_for(lambda load: load.waiting == 1 and load.active == 2)
    scheduler.stop("late")
    open_gate(engine)
    assert waiting.wait().reason is FinishReason.CANCELLED
    assert waiting.tokens == []
    assert all(reader.wait().reason is FinishReason.LENGTH for reader in running)
    assert not any(3 in names for names in engine.steps)


def test_stop_of_an_ended_or_unknown_request_does_nothing(scheduler):
    reader = submit(scheduler, 1, 3, "a").wait()
    scheduler.stop("a")
    scheduler.stop("never seen")
    assert submit(scheduler, 2, 3, "a").wait().tokens == coded_tokens(2, 3)
    assert reader.reason is FinishReason.LENGTH


def test_stop_needs_an_id(scheduler):
    with pytest.raises(InvalidInput, match="request_id: '' is not accepted; the id of the request to stop"):
        scheduler.stop("")


def test_id_may_be_used_again_only_after_the_end(scheduler, engine):
    close_gate(engine)
    first = submit(scheduler, 1, 2, "a")
    with pytest.raises(InvalidInput, match="request_id: 'a' is not accepted; a request with this id has not"):
        submit(scheduler, 2, 2, "a")
    open_gate(engine)
    first.wait()
