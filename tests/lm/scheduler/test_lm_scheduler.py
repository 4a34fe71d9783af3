"""Requests through a scheduler whose engine tells whose tokens are whose."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest
from coded_engine import TIMEOUT_S, CodedEngine, CollectingReader, coded_request, coded_tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput, OverloadedError
from cosyvoice_runtime.gpu.partitions.division import GpuDivision
from cosyvoice_runtime.gpu.partitions.partition import GpuParts
from cosyvoice_runtime.gpu.partitions.shared_gpu import GpuShifts, SharedGpu
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.engines.engine import EngineError
from cosyvoice_runtime.lm.scheduler import scheduler as scheduler_module
from cosyvoice_runtime.lm.scheduler.load_metrics import Load
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from eventually import eventually

ENDLESS = 10**7
"""Tokens of a request that only a stop ends."""


def submit(scheduler: Scheduler, name: int, tokens: int, request_id: str = "", **reader) -> CollectingReader:
    recorder = CollectingReader(**reader)
    scheduler.submit(coded_request(name, tokens, request_id), recorder)
    return recorder


def submit_together(scheduler: Scheduler, names: Iterable[int], tokens: int) -> list[CollectingReader]:
    """Ask for several before the scheduler looks at any of them."""
    with scheduler._changed:
        return [submit(scheduler, name, tokens) for name in names]


def close_gate(engine: CodedEngine) -> threading.Semaphore:
    """Every step waits for a permit from now on."""
    engine.gate = threading.Semaphore(0)
    return engine.gate


def open_gate(engine: CodedEngine) -> None:
    """Let the engine run freely."""
    gate, engine.gate = engine.gate, None
    gate.release()


def wait_for_step(engine: CodedEngine) -> None:
    """Wait until one more step begins."""
    assert engine.arrived.acquire(timeout=TIMEOUT_S)


def test_every_reader_gets_its_own_tokens_and_one_end(scheduler):
    lengths = {1: 30, 2: 1, 3: 12, 4: 7, 5: 25}
    readers = {name: submit(scheduler, name, tokens) for name, tokens in lengths.items()}
    for name, reader in readers.items():
        assert reader.wait().tokens == coded_tokens(name, lengths[name])
        assert reader.reason is FinishReason.LENGTH
        assert set(reader.reasons[:-1]) <= {None}
        assert reader.ends == [None]


@settings(max_examples=30)
@given(slots=st.integers(1, 4), lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_any_mix_of_lengths_comes_out_whole(slots, lengths):
    engine = CodedEngine(slots)
    scheduler = Scheduler(lambda: engine, 100, lambda load: None)
    readers = [submit(scheduler, name, tokens) for name, tokens in enumerate(lengths)]
    scheduler.close()
    assert [reader.tokens for reader in readers] == [coded_tokens(*item) for item in enumerate(lengths)]
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


def test_full_queue_refuses_one_more_and_serves_the_rest(make_scheduler, engine):
    close_gate(engine)
    scheduler = make_scheduler(lambda: engine, max_waiting=3)
    readers = [submit(scheduler, name, 2) for name in range(5)]
    with pytest.raises(OverloadedError, match="max_queue_size: 2 requests run and 3 wait; try again later"):
        submit(scheduler, 9, 2)
    open_gate(engine)
    assert [reader.wait().tokens for reader in readers] == [coded_tokens(name, 2) for name in range(5)]


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


def test_close_lets_running_and_waiting_requests_finish(make_scheduler, engine):
    scheduler = make_scheduler(lambda: engine)
    readers = [submit(scheduler, name, 20) for name in range(6)]
    scheduler.close()
    assert [reader.tokens for reader in readers] == [coded_tokens(name, 20) for name in range(6)]
    with pytest.raises(OverloadedError, match="the server is shutting down"):
        submit(scheduler, 9, 1)


class Standing(SharedGpu):
    """A GPU on whose part for steps a first chunk is computed, until a test says that it is done."""

    stands_still = True

    def when_free(self, tell):
        self._tell = tell

    def end_chunk(self):
        self.stands_still = False
        self._tell()


def stand(engine: CodedEngine) -> None:
    """Wait until no further step comes for a while, which takes few steps."""
    for _ in range(5000):
        if not engine.arrived.acquire(timeout=0.2):
            return
    pytest.fail("steps go on")


def test_steps_that_nobody_waits_for_stand_still_beside_a_first_chunk(make_scheduler, engine, monkeypatch):
    monkeypatch.setattr(scheduler_module, "LONGEST_STILL_S", TIMEOUT_S)
    gpu = Standing()
    scheduler = make_scheduler(lambda: engine, shared=gpu)
    readers = {name: submit(scheduler, name, ENDLESS, request_id=str(name)) for name in (1, 2)}
    try:
        for reader in readers.values():
            assert reader.sending.wait(TIMEOUT_S)  # they waited for their first tokens
        stand(engine)
        scheduler.stop("1")
        assert readers[1].wait().reason is FinishReason.CANCELLED
        stand(engine)
        readers[3] = submit(scheduler, 3, ENDLESS, request_id="3")
        assert readers[3].sending.wait(TIMEOUT_S)  # who comes meanwhile is heard
        stand(engine)
        gpu.end_chunk()
        wait_for_step(engine)
    finally:
        gpu.end_chunk()
        for name in readers:
            scheduler.stop(str(name))


def test_no_end_of_a_first_chunk_is_missed_by_steps_that_stand_still(make_scheduler, engine, monkeypatch):
    """The chunks end at any moment of a step and of the wait that follows it."""
    monkeypatch.setattr(scheduler_module, "LONGEST_STILL_S", TIMEOUT_S)
    gpu = GpuDivision(GpuParts(None, None, ()))  # type: ignore[arg-type]
    scheduler = make_scheduler(lambda: engine, shared=gpu)
    reader = submit(scheduler, 1, ENDLESS, request_id="1")
    assert reader.sending.wait(TIMEOUT_S)
    for number in range(300):
        with gpu.first_chunk(1):
            time.sleep(number % 10 * 1e-4)
        while engine.arrived.acquire(blocking=False):
            pass
        wait_for_step(engine)
    scheduler.stop("1")


@pytest.mark.parametrize("streaming", [True, False])
def test_steps_do_not_stand_still_for_ever(make_scheduler, engine, streaming):
    scheduler = make_scheduler(lambda: engine, shared=Standing())
    reader = CollectingReader()
    scheduler.submit(coded_request(1, 12, streaming=streaming), reader)
    assert reader.wait().tokens == coded_tokens(1, 12)
    other = CollectingReader()
    scheduler.submit(coded_request(2, 12, streaming=streaming), other)
    scheduler.close()
    assert other.tokens == coded_tokens(2, 12)


class NotedShifts(GpuShifts):
    """Knows of each step whether it was urgent."""

    def __init__(self):
        super().__init__()
        self.urgent = []

    def step(self, urgent):
        self.urgent.append(urgent)
        return super().step(urgent)


def test_steps_are_urgent_while_the_reader_of_a_stream_has_nothing(make_scheduler, engine):
    shifts, gate = NotedShifts(), close_gate(engine)
    scheduler = make_scheduler(lambda: engine, shared=shifts)

    def next_step():
        gate.release()
        wait_for_step(engine)
        return shifts.urgent[-1]

    first = submit(scheduler, 1, 900)
    wait_for_step(engine)
    assert shifts.urgent == [True]
    next_step()
    assert first.sending.wait(TIMEOUT_S)
    assert next_step() is False
    second = submit(scheduler, 2, 900)
    assert next_step() is True
    next_step()
    assert second.sending.wait(TIMEOUT_S)
    assert next_step() is False
    for reader in (first, second):
        reader.leave_after = 0
    open_gate(engine)
    whole = CollectingReader()
    scheduler.submit(coded_request(3, 5, streaming=False), whole)
    first.wait(), second.wait(), whole.wait()
    assert shifts.urgent[-1] is False


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


def test_failing_watcher_disturbs_nobody(engine, caplog):
    told = threading.Event()

    def watch(load: Load) -> None:
        told.set()
        raise OSError("metrics are down")

    scheduler = Scheduler(lambda: engine, 100, watch)
    assert submit(scheduler, 1, 20).wait().tokens == coded_tokens(1, 20)
    assert told.wait(TIMEOUT_S)
    assert submit(scheduler, 2, 20).wait().tokens == coded_tokens(2, 20)
    scheduler.close()
    assert "metrics are down" in caplog.text


def gets_the_gpu(shifts: GpuShifts) -> bool:
    """Whether a turn begins."""
    begun = threading.Event()

    def turn() -> None:
        with shifts.turn():
            begun.set()

    threading.Thread(target=turn, daemon=True).start()
    return begun.wait(TIMEOUT_S)


def test_steps_stand_still_while_others_have_the_gpu_and_claim_nothing_without_work(make_scheduler, engine):
    shifts = GpuShifts()
    scheduler = make_scheduler(lambda: engine, shared=shifts)
    with shifts.turn():
        reader = submit(scheduler, 1, 3)
        assert not reader.ended.wait(0.2)
    reader.wait()
    assert gets_the_gpu(shifts)


def test_broken_engine_does_not_keep_the_gpu(make_scheduler, engine):
    shifts = GpuShifts()
    scheduler = make_scheduler(lambda: engine, shared=shifts)
    engine.failure = RuntimeError("told to fail")
    submit(scheduler, 1, 3).ended.wait(TIMEOUT_S)
    assert gets_the_gpu(shifts)
