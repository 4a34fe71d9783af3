"""Order, cuts and errors of chunks in the queue, with coded networks."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from unittest.mock import Mock

import pytest
from coded_waves import (
    BAD_TOKEN,
    BLOCK,
    BROKEN_TOKEN,
    LOST_GPU_TOKEN,
    PROMPT,
    CodedWaves,
    FakeClock,
    OneVoice,
    chunk,
    runtime,
)

from cosyvoice_runtime.engine.batches import WaveChunk, WaveScheduler, WaveService
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput, OverloadedError
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu

TIMEOUT_S = 120.0


class HeldWaves(CodedWaves):
    """Computes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.computing = threading.Event()

    def advance(self, states):
        self.computing.set()
        assert self.go.wait(TIMEOUT_S)
        return super().advance(states)


@pytest.fixture
def waves() -> HeldWaves:
    return HeldWaves()


@pytest.fixture
def scheduler(waves):
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(service, runtime(waves, 4), max_waiting=6, batch_s=1e-6, clock=FakeClock())
    yield scheduler
    waves.go.set()
    scheduler.close()


def run(scheduler, waves) -> None:
    waves.go.set()
    scheduler.close()


def start_busy(scheduler, waves, outcomes) -> None:
    """Something is being computed while the rest is queued."""
    scheduler.submit(chunk("busy", [0], last=True), outcomes.of("busy"))
    assert waves.computing.wait(TIMEOUT_S)


def test_whoever_runs_dry_first_comes_first_whether_the_voice_is_new_or_known(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)
    block = [1] * BLOCK
    scheduler.submit(chunk("rich", block, cushion_s=5.0), outcomes.of("rich"))
    scheduler.submit(chunk("new", block, voice_key="new", prompt=PROMPT), outcomes.of("new"))
    scheduler.submit(chunk("poor", block, cushion_s=0.1), outcomes.of("poor"))
    scheduler.submit(chunk("silent", block), outcomes.of("silent"))
    run(scheduler, waves)
    assert outcomes.names == ["busy", "new", "silent", "poor", "rich"]


def test_utterance_that_waits_for_others_is_not_idle_however_long_that_takes(waves, outcomes):
    clock, spoken = FakeClock(), threading.Event()
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0, clock=clock)

    class BehindALongTurn(SharedGpu):
        @contextmanager
        def turn(self):
            if spoken.is_set():
                clock.now += 61.0
                service.sweep()
            yield

    scheduler = WaveScheduler(service, runtime(waves, 1), 6, 1e-6, BehindALongTurn(), clock=clock)
    waves.go.set()
    first = threading.Event()
    scheduler.submit(chunk("waits", [1]), lambda _: first.set())
    assert first.wait(TIMEOUT_S)
    spoken.set()
    with scheduler._wake:  # both are there before the first is looked at
        scheduler.submit(chunk("busy", [0] * BLOCK), outcomes.of("busy"))
        scheduler.submit(chunk("waits", [2], 1, cushion_s=5.0), outcomes.of("waits"))
    scheduler.close()
    assert outcomes.delivered == [("busy", [0] * BLOCK), ("waits", [2])]


def test_urgent_chunk_comes_between_the_parts_of_a_long_one(scheduler, waves, outcomes):
    long = list(range(100, 200))
    scheduler.submit(chunk("long", long, cushion_s=5.0), outcomes.of("long"))
    assert waves.computing.wait(TIMEOUT_S)
    scheduler.submit(chunk("urgent", [7]), outcomes.of("urgent"))
    run(scheduler, waves)
    assert outcomes.delivered == [("urgent", [7]), ("long", long)]
    assert waves.batches[:2] == [[long[:BLOCK]], [[7]]]


def test_chunks_of_one_utterance_stay_in_order(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)
    scheduler.submit(chunk("a", [1], cushion_s=5.0), outcomes.of("first"))
    scheduler.submit(chunk("a", [2], 1), outcomes.of("second"))
    scheduler.submit(chunk("a", [3], 2, last=True), outcomes.of("third"))
    run(scheduler, waves)
    assert outcomes.delivered[1:] == [("first", [1]), ("second", [2]), ("third", [3])]


@pytest.mark.parametrize(
    ("token", "error"),
    [(BAD_TOKEN, "speech_tokens: 1000 is not accepted"), (BROKEN_TOKEN, "this row can't be computed")],
)
def test_error_in_a_part_is_the_chunks_and_ends_its_utterance_alone(scheduler, waves, outcomes, token, error):
    start_busy(scheduler, waves, outcomes)
    scheduler.submit(chunk("bad", [1] * BLOCK + [token] * BLOCK + [1] * BLOCK), outcomes.of("bad"))
    scheduler.submit(chunk("good", [1] * 3 * BLOCK, last=True), outcomes.of("good"))
    run(scheduler, waves)
    found = dict(outcomes.delivered)
    assert found["bad"].startswith(error)
    assert found["good"] == [1] * 3 * BLOCK
    assert waves.open_states == set()


def test_chunk_with_a_bad_token_is_refused_before_any_of_it_is_computed(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)
    scheduler.submit(chunk("bad", [1] * 5 * BLOCK + [BAD_TOKEN]), outcomes.of("bad"))
    run(scheduler, waves)
    assert outcomes.delivered[-1][1].startswith("speech_tokens: 1000")
    assert waves.batches == [[[0]]]


def test_reader_that_fails_takes_nothing_from_others(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)

    def broken(_: object) -> None:
        raise RuntimeError("the client has gone")

    scheduler.submit(chunk("a", [1]), broken)
    scheduler.submit(chunk("b", [2]), outcomes.of("b"))
    run(scheduler, waves)
    assert outcomes.delivered[-1] == ("b", [2])


WITHDRAWN = "the utterance was cancelled before this was computed"


def cancel(name: str) -> WaveChunk:
    return WaveChunk.forgetting(name)


def test_cancel_withdraws_what_waits_at_once_and_nothing_of_it_is_computed(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)
    for name in ("left", "stays"):
        scheduler.submit(chunk(name, [1]), outcomes.of(name))
    scheduler.submit(chunk("left", [2], 1), outcomes.of("left"))
    scheduler.submit(cancel("left"), outcomes.of("cancel"))
    assert outcomes.delivered == [("left", WITHDRAWN)] * 2
    run(scheduler, waves)
    assert sorted(outcomes.names[2:]) == ["busy", "cancel", "stays"]
    assert waves.batches == [[[0]], [[1]]]
    assert waves.open_states == set()


def test_cancel_ends_a_long_chunk_between_two_of_its_parts(scheduler, waves, outcomes):
    scheduler.submit(chunk("left", [1] * 4 * BLOCK, cushion_s=5.0), outcomes.of("left"))
    assert waves.computing.wait(TIMEOUT_S)
    scheduler.submit(cancel("left"), outcomes.of("cancel"))
    run(scheduler, waves)
    assert outcomes.delivered == [("left", WITHDRAWN), ("cancel", [])]
    assert waves.batches == [[[1] * BLOCK]]
    assert waves.open_states == set()


def test_cancelled_name_may_be_used_again(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)
    scheduler.submit(chunk("again", [1], cushion_s=1.0), outcomes.of("first"))
    scheduler.submit(cancel("again"), outcomes.of("cancel"))
    scheduler.submit(chunk("again", [2], last=True), outcomes.of("second"))
    run(scheduler, waves)
    assert outcomes.delivered[0] == ("first", WITHDRAWN)
    others = [each for each in outcomes.delivered[1:] if each != ("busy", [0])]
    assert others == [("cancel", []), ("second", [2])]


def test_chunk_beyond_the_queue_is_refused_but_not_a_cancel(scheduler, waves, outcomes):
    start_busy(scheduler, waves, outcomes)
    for row in range(6):
        scheduler.submit(chunk(str(row), [1]), outcomes.of(str(row)))
    with pytest.raises(OverloadedError, match="6 chunks wait"):
        scheduler.submit(chunk("one more", [1]), outcomes.of("one more"))
    scheduler.submit(chunk("0", cancel=True), outcomes.of("cancel"))
    run(scheduler, waves)
    assert outcomes.names.index("0") < outcomes.names.index("cancel")


@pytest.mark.parametrize("cushion_s", [-1.0, float("nan"), float("inf")])
def test_cushion_out_of_range_is_refused(scheduler, outcomes, cushion_s):
    with pytest.raises(InvalidInput, match="cushion"):
        scheduler.submit(chunk("a", [1], cushion_s=cushion_s), outcomes.of("a"))


def test_waiting_chunks_are_told(waves, outcomes):
    told: list[int] = []
    waves.go.set()
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(service, runtime(waves, 4), 8, 1.0, on_waiting=told.append)
    scheduler.submit(chunk("a", [1], last=True), outcomes.of("a"))
    scheduler.close()
    assert told == [1, 0]


def test_chunk_that_comes_after_the_end_is_refused(scheduler, waves, outcomes):
    run(scheduler, waves)
    with pytest.raises(CosyVoiceError, match="token2wav has ended"):
        scheduler.submit(chunk("late", [1]), outcomes.of("late"))
    assert outcomes.delivered == []


class FragileService(WaveService):
    """Breaks where a name says so, and for that utterance alone where it can know it."""

    def computes_voice(self, chunk):
        if chunk.utterance_id == "breaks voices":
            raise RuntimeError("computes_voice")
        return super().computes_voice(chunk)

    def launch(self, chunks, beside=False):
        names = [chunk.utterance_id for chunk in chunks]
        if "breaks launch" in names:
            raise RuntimeError("launch")
        outcomes = super().launch(chunks, beside)
        return partial(self._break, outcomes) if "breaks end" in names else outcomes

    def _break(self, outcomes):
        outcomes()
        raise RuntimeError("end")


@pytest.mark.parametrize("where", ["computes_voice", "launch", "end"])
def test_no_error_of_the_service_ends_the_thread_or_leaves_a_request_waiting(waves, outcomes, where):
    service = FragileService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(service, runtime(waves, 4), 8, 1.0)
    guilty = f"breaks {'voices' if where == 'computes_voice' else where}"
    waves.go.set()
    scheduler.submit(chunk(guilty, [1], last=True), outcomes.of("guilty"))
    scheduler.submit(chunk("other", [2], last=True), outcomes.of("other"))
    scheduler.submit(chunk(guilty, [3], last=True), outcomes.of("again"))
    scheduler.close()
    found = dict(outcomes.delivered)
    assert found["guilty"] == found["again"] == where
    assert len(outcomes.delivered) == 3


def test_one_that_can_not_be_asked_about_its_voice_fails_alone_in_a_turn(waves, outcomes):
    service = FragileService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(service, runtime(waves, 4), 8, 1.0)
    start_busy(scheduler, waves, outcomes)
    for name in ("a", "breaks voices", "b"):
        scheduler.submit(chunk(name, [3], last=True), outcomes.of(name))
    run(scheduler, waves)
    assert sorted(outcomes.delivered, key=str) == [
        ("a", [3]), ("b", [3]), ("breaks voices", "computes_voice"), ("busy", [0]),
    ]  # fmt: skip


def test_lost_gpu_answers_everybody_and_ends_the_process(waves, outcomes):
    ended = []
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(
        service,
        runtime(waves, 4),
        8,
        1.0,
        end_process=lambda reason: ended.append((reason, list(outcomes.names))),
    )
    start_busy(scheduler, waves, outcomes)
    scheduler.submit(chunk("bad", [LOST_GPU_TOKEN]), outcomes.of("bad"))
    scheduler.submit(chunk("beside", [1]), outcomes.of("beside"))
    scheduler.submit(chunk("beside", [2], 1), outcomes.of("later"))
    run(scheduler, waves)
    reason = "token2wav can't go on (RuntimeError); its process is started anew"
    assert ended == [(reason, ["busy", "bad", "beside", "later"])]
    assert [text for _, text in outcomes.delivered[1:]] == [reason] * 3
    with pytest.raises(CosyVoiceError, match="can't go on"):
        scheduler.submit(chunk("new", [1]), outcomes.of("new"))


def test_lost_gpu_ends_the_process_though_there_is_no_thread_to_spare(monkeypatch, outcomes):
    waves, ended = CodedWaves(), threading.Event()
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(service, runtime(waves, 4), 8, 1.0, end_process=lambda _: ended.set())
    no_thread = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    scheduler.submit(chunk("a", [LOST_GPU_TOKEN]), outcomes.of("a"))
    assert ended.wait(TIMEOUT_S)
    assert no_thread.called
    assert outcomes.names == ["a"]
    scheduler.close()


def test_lost_gpu_ends_the_process_though_somebody_takes_no_answer():
    waves, ended, hold = CodedWaves(), threading.Event(), threading.Event()
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0)
    scheduler = WaveScheduler(service, runtime(waves, 4), 8, 1.0, end_process=lambda _: ended.set())
    try:
        scheduler.submit(chunk("a", [LOST_GPU_TOKEN]), lambda _: hold.wait())
        assert ended.wait(TIMEOUT_S)
    finally:
        hold.set()
        scheduler.close()


@pytest.mark.parametrize("wrong", [{"position": -1}, {"utterance": ""}, {"tokens": [None]}])
def test_impossible_chunk_is_refused_before_it_waits(scheduler, waves, outcomes, wrong):
    arguments = {"name": wrong.pop("utterance", "a"), "tokens": [1], **wrong}
    with pytest.raises(InvalidInput):
        scheduler.submit(chunk(**arguments), outcomes.of("a"))
    run(scheduler, waves)
    assert outcomes.delivered == []
