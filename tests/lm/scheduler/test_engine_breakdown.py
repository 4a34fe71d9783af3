"""Engines that refuse, break, or take their thread along."""

from __future__ import annotations

import threading

import pytest
from coded_engine import (
    TIMEOUT_S,
    CodedEngine,
    CollectingReader,
    close_gate,
    coded_request,
    coded_tokens,
    submit,
    submit_together,
)

from cosyvoice_runtime.lm.engines.engine import EngineError


def test_request_that_the_engine_refuses_fails_alone(scheduler, engine):
    engine.refused = {1}
    refused, other = submit(scheduler, 1, 3), submit(scheduler, 2, 3)
    assert str(refused.wait().ends[0]) == "1 is refused"
    assert other.wait().tokens == coded_tokens(2, 3)
    assert engine.closed == 0


def test_sequence_that_breaks_fails_alone(scheduler, engine):
    engine.broken = {1}
    broken, other = submit(scheduler, 1, 3), submit(scheduler, 2, 3)
    assert str(broken.wait().ends[0]) == "1 is broken"
    assert other.wait().tokens == coded_tokens(2, 3)


def test_breakdown_fails_the_running_and_a_fresh_engine_serves_the_waiting(make_scheduler, engine, loads):
    gate = close_gate(engine)
    fresh = CodedEngine()
    engines = iter([engine, fresh])
    scheduler = make_scheduler(lambda: next(engines))
    *running, waiting = submit_together(scheduler, (1, 2, 3), 3)
    loads.wait_for(lambda load: load.active == 2)
    engine.failure = RuntimeError("/a/path in a message")
    gate.release()
    for reader in running:
        error = reader.wait().ends[0]
        assert isinstance(error, EngineError)
        assert str(error) == "the speech LM's engine broke down (RuntimeError)"
    assert waiting.wait().tokens == coded_tokens(3, 3)
    assert (engine.closed, fresh.steps) == (1, [[3]] * 3)


def test_breakdown_on_joining_fails_that_request_too(make_scheduler, engine):
    engine.add_failure = MemoryError()
    engines = iter([engine, CodedEngine()])
    scheduler = make_scheduler(lambda: next(engines))
    assert isinstance(submit(scheduler, 1, 3).wait().ends[0], EngineError)
    assert submit(scheduler, 2, 3).wait().tokens == coded_tokens(2, 3)


def test_engine_that_cannot_be_closed_is_replaced_all_the_same(make_scheduler, engine):
    engine.failure = RuntimeError()
    engine.close_failure = RuntimeError("CUDA error: an illegal memory access was encountered")
    engines = iter([engine, CodedEngine()])
    scheduler = make_scheduler(lambda: next(engines))
    assert isinstance(submit(scheduler, 1, 3).wait().ends[0], EngineError)
    assert submit(scheduler, 2, 3).wait().tokens == coded_tokens(2, 3)


@pytest.mark.parametrize(
    ("failure", "closed", "reason"),
    [
        pytest.param(RuntimeError(), 1, "StopIteration", id="there is no fresh engine"),
        pytest.param(
            RuntimeError("CUDA error: unspecified launch failure"), 0, "RuntimeError", id="the GPU is lost"
        ),
    ],
)
def test_without_a_fresh_engine_everybody_is_answered_and_the_process_ends(
    make_scheduler, engine, loads, failure, closed, reason
):
    gate = close_gate(engine)
    engines, ended = iter([engine]), threading.Event()
    answered: list[int] = []
    reasons: list[str] = []

    def end_process(reason: str) -> None:
        answered.extend(len(reader.ends) for reader in readers)
        reasons.append(reason)
        ended.set()

    scheduler = make_scheduler(lambda: next(engines), end_process=end_process)
    readers = submit_together(scheduler, (1, 2, 3), 3)
    loads.wait_for(lambda load: load.active == 2)
    engine.failure = failure
    gate.release()
    assert ended.wait(TIMEOUT_S)
    assert answered == [1, 1, 1]
    message = "the speech LM's engine broke down and can't be started anew"
    assert reasons == [f"{message} ({reason})"]
    assert str(readers[2].ends[0]) == message
    with pytest.raises(EngineError, match=message):
        submit(scheduler, 4, 3)
    scheduler.close()
    assert engine.closed == closed


def test_every_reader_is_told_once_why_the_scheduler_ends(make_scheduler, loads):
    """Readers of running requests that have or have not got tokens, of a stopped and of waiting ones."""
    engine, ended = CodedEngine(slots=4), threading.Event()
    gate = close_gate(engine)
    scheduler = make_scheduler(lambda: engine, end_process=lambda _: ended.set())
    readers = [CollectingReader() for _ in range(6)]
    wholes = [CollectingReader(end_failure=RuntimeError("the reader fails")), CollectingReader()]
    with scheduler._changed:
        for name, reader in enumerate(wholes):
            scheduler.submit(coded_request(name, 100, streaming=False), reader)
        for name, reader in enumerate(readers, 2):
            scheduler.submit(coded_request(name, 100, f"r{name}"), reader)
    loads.wait_for(lambda load: (load.active, load.waiting) == (4, 4))
    gate.release(3)
    loads.wait_for(lambda load: load.tokens == 12)
    scheduler.stop("r7")
    engine.failure = SystemExit(1)
    gate.release()
    assert ended.wait(TIMEOUT_S)
    message = "the speech LM's engine broke down and can't be started anew"
    assert [[str(end) for end in reader.ends] for reader in wholes + readers] == [[message]] * 8
    assert [len(reader.tokens) for reader in wholes + readers] == [0, 0, 3, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("failure", [SystemExit(1), GeneratorExit()], ids=["exit", "panic"])
@pytest.mark.parametrize("where", ["failure", "add_failure"])
def test_engine_that_ends_its_thread_leaves_nobody_waiting(make_scheduler, engine, failure, where):
    """A library that exits, or a panic of compiled code, which is no ``Exception``."""
    ended, gate = threading.Event(), close_gate(engine)
    scheduler = make_scheduler(lambda: engine, end_process=lambda _: ended.set())
    setattr(engine, where, failure)
    readers = submit_together(scheduler, (1, 2, 3), 3)
    gate.release(10)
    for reader in readers:
        assert isinstance(reader.wait().ends[0], EngineError)
    assert ended.wait(TIMEOUT_S)
    with pytest.raises(EngineError):
        submit(scheduler, 4, 1)
