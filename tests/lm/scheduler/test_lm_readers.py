"""Readers of speech tokens that leave or fail end their own requests alone."""

from __future__ import annotations

import pytest
from coded_engine import (
    ENDLESS,
    CollectingReader,
    close_gate,
    coded_request,
    coded_tokens,
    open_gate,
    submit,
    submit_together,
)

from cosyvoice_runtime.lm import FinishReason


def test_reader_that_has_gone_frees_its_slot_and_its_neighbours_finish(scheduler, loads):
    gone, neighbour = submit(scheduler, 1, ENDLESS, leave_after=3), submit(scheduler, 2, 50)
    assert isinstance(gone.wait().ends[0], ConnectionError)
    assert neighbour.wait().tokens == coded_tokens(2, 50)
    loads.wait_for(lambda load: load.active == 0 and load.finished.get(FinishReason.CANCELLED) == 1)
    assert gone.tokens == coded_tokens(1, len(gone.tokens))
    assert len(gone.ends) == 1


@pytest.mark.parametrize("tokens", [2, ENDLESS])
def test_reader_that_goes_with_the_first_of_a_steps_tokens_ends_its_own_request_alone(
    scheduler, engine, tokens
):
    """Captured steps bring the first two tokens of an utterance together, in a progress each."""
    engine.rows = 2
    gone, neighbour = submit(scheduler, 1, tokens, leave_after=0), submit(scheduler, 2, 50)
    assert isinstance(gone.wait().ends[0], ConnectionError)
    assert neighbour.wait().tokens == coded_tokens(2, 50)
    assert neighbour.ends == [None]
    assert len(gone.ends) == 1
    assert engine.closed == 0


def test_reader_of_a_whole_answer_that_goes_before_its_end_frees_the_slot(scheduler, engine, loads):
    gate = close_gate(engine)
    reader = CollectingReader()
    scheduler.submit(coded_request(1, ENDLESS, streaming=False), reader)
    gate.release()
    loads.wait_for(lambda load: load.active == 1)
    reader.gone = True
    open_gate(engine)
    reader.wait()
    assert reader.groups == []
    assert len(reader.ends) == 1


def test_reader_that_has_gone_while_waiting_never_gets_a_slot(scheduler, engine, loads):
    close_gate(engine)
    *running, waiting = submit_together(scheduler, (1, 2, 3), 3)
    loads.wait_for(lambda load: load.waiting == 1)
    waiting.gone = True
    open_gate(engine)
    waiting.wait()
    assert all(reader.wait().ends == [None] for reader in running)
    assert not any(3 in names for names in engine.steps)


def test_reader_that_fails_while_waiting_ends_its_own_request_alone(scheduler, engine, loads):
    gate = close_gate(engine)
    *running, broken, waiting = submit_together(scheduler, (1, 2, 3, 4), 3)
    loads.wait_for(lambda load: (load.active, load.waiting) == (2, 2))
    broken.failure = OSError("/a/path in a message")
    gate.release()
    open_gate(engine)
    assert str(broken.wait().ends[0]) == "the reader of the speech tokens failed (OSError)"
    for name, reader in zip((1, 2, 4), (*running, waiting), strict=True):
        assert reader.wait().tokens == coded_tokens(name, 3)
    assert engine.closed == 0
    assert not any(3 in names for names in engine.steps)


def test_reader_that_fails_while_its_answer_grows_ends_its_own_request_alone(scheduler, engine, loads):
    gate = close_gate(engine)
    broken = CollectingReader()
    scheduler.submit(coded_request(1, ENDLESS, streaming=False), broken)
    neighbour = submit(scheduler, 2, 40)
    gate.release()
    loads.wait_for(lambda load: load.active == 2)
    broken.failure = OSError()
    open_gate(engine)
    assert str(broken.wait().ends[0]) == "the reader of the speech tokens failed (OSError)"
    assert neighbour.wait().tokens == coded_tokens(2, 40)
    loads.wait_for(lambda load: load.active == 0 and load.finished.get(FinishReason.CANCELLED) == 1)
    assert engine.closed == 0


def test_reader_that_fails_at_its_end_disturbs_nobody_and_the_load_is_still_told(scheduler, loads):
    broken = submit(scheduler, 1, 3, end_failure=OSError())
    assert broken.wait().tokens == coded_tokens(1, 3)
    loads.wait_for(lambda load: load.active == 0 and load.finished == {FinishReason.LENGTH: 1})
    assert submit(scheduler, 2, 3).wait().tokens == coded_tokens(2, 3)
    assert broken.ends == [None]
