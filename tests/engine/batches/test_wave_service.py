"""Batches, errors and ends of utterances, with coded networks."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest
from coded_waves import (
    BAD_TOKEN,
    BROKEN_TOKEN,
    LOST_GPU_TOKEN,
    NAN_TOKEN,
    PROMPT,
    CodedWaves,
    OneVoice,
    assert_nothing_held,
    chunk,
    results,
)

from cosyvoice_runtime.engine.batches import WaveService
from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.gpu.cuda_errors import is_fatal

IDLE_S = 60.0
TIMEOUT_S = 120.0


@pytest.fixture
def service(waves, voices, clock):
    service = WaveService(waves, voices, idle_timeout_s=IDLE_S, clock=clock)
    yield service
    service.close()


def test_one_that_can_not_be_freed_keeps_nobody_elses_voice(caplog):
    class Stuck(CodedWaves):
        def close(self, state):
            if BROKEN_TOKEN in state.pending:
                raise RuntimeError("stuck")
            super().close(state)

    waves, voices = Stuck(), OneVoice()
    service = WaveService(waves, voices, idle_timeout_s=60.0)
    service.run([chunk("a", [BROKEN_TOKEN]), chunk("b", [1], last=True), chunk("c", [2])])
    service.run([chunk("c", [3], 1, last=True)])
    assert voices.users == 0
    assert waves.open_states != set()
    assert "could not be freed" in caplog.text
    service.close()


def test_chunks_of_many_utterances_are_one_batch_and_each_gets_its_own(service, waves):
    assert results(service, chunk("a", [1, 2]), chunk("b", [3]), chunk("c")) == [[1, 2], [3], []]
    assert waves.batches == [[[1, 2], [3], []]]
    assert service.usage().batches == {3: 1}


@pytest.mark.parametrize("tokens", [[], [7, 8]])
def test_last_chunk_frees_the_utterance(service, waves, voices, tokens):
    assert results(service, chunk("a", [1, 2])) == [[1, 2]]
    assert results(service, chunk("a", tokens, position=2, last=True)) == [tokens]
    assert_nothing_held(service, waves, voices)


def test_utterance_opened_without_tokens_goes_on_from_position_0(service):
    assert results(service, chunk("a")) == [[]]
    assert results(service, chunk("a", [1], position=0)) == [[1]]
    assert results(service, chunk("a", [2], position=1)) == [[2]]


def test_cancel_frees_the_utterance_and_may_be_repeated(service, waves, voices):
    results(service, chunk("a", [1]))
    for _ in range(2):
        assert results(service, chunk("a", [5], voice_key="", cancel=True)) == [[]]
    assert_nothing_held(service, waves, voices)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"tokens": [BAD_TOKEN]}, "speech_tokens: 1000 is not accepted; tokens are 0 to 999"),
        ({"tokens": [NAN_TOKEN]}, "vocoder: NaN or infinity in the samples"),
        ({"position": 5}, "utterance_id: 'bad' is unknown; it was not opened, has ended or failed"),
        ({"voice_key": "new"}, "voice_key: 'new' is unknown; send it"),
        ({"voice_key": ""}, "voice_key: '' is not accepted; 1 to 256 characters"),
        ({"noise_seed": -1}, "noise_seed: -1 is not accepted; an integer from 0 to"),
        ({"noise_seed": 2**63}, "noise_seed: 9223372036854775808 is not accepted"),
        ({"speed": 0.0}, "speed: 0.0 is not accepted"),
        ({"speed": float("nan")}, "speed: nan is not accepted"),
        ({"position": -1}, "position: -1 is not accepted; 0 or more tokens"),
        ({"cushion_s": float("nan")}, "cushion: nan is not accepted; 0 to 3600 s"),
        ({"tokens": [1.5]}, "speech_tokens: 1.5 is not accepted; whole numbers are expected"),
        ({"tokens": [None]}, "speech_tokens: None is not accepted; whole numbers are expected"),
        ({"voice_key": "k" * 257}, "voice_key: 'kkk"),
        ({"voice_key": None}, "voice_key: None is not accepted"),
    ],
)
def test_bad_row_fails_alone_and_is_freed(service, waves, voices, bad, error):
    first, failed, third = results(service, chunk("a", [1]), chunk("bad", **bad), chunk("c", [3]))
    assert (first, third) == ([1], [3])
    assert failed.startswith(error)
    again = results(
        service, chunk("a", [2], 1, last=True), chunk("bad", [9], 1), chunk("c", [4], 1, last=True)
    )
    assert again[0] == [2]
    assert again[1].startswith("utterance_id: 'bad' is unknown")
    assert again[2] == [4]
    assert_nothing_held(service, waves, voices)


def test_bad_token_in_a_later_chunk_ends_the_utterance(service, waves, voices):
    results(service, chunk("a", [1]))
    assert results(service, chunk("a", [BAD_TOKEN], 1))[0].startswith("speech_tokens: 1000")
    assert_nothing_held(service, waves, voices)


def test_a_refusal_that_ends_late_leaves_the_utterance_that_was_opened_meanwhile(service):
    """Two parts of a chunk whose voice is not known are under way, and the voice comes after the first."""
    first, second = (service.launch([chunk("a", [1], at, voice_key="new")]) for at in (0, 1))
    assert isinstance(first()[0], NotFoundError)
    opened = service.launch([chunk("a", [1], voice_key="new", prompt=PROMPT)])
    assert isinstance(second()[0], NotFoundError)
    assert opened()[0].tolist() == [1]
    assert "a" in service


@pytest.mark.parametrize("position", [0, 1, 3])
def test_lost_or_repeated_chunk_is_refused(service, waves, voices, position):
    results(service, chunk("a", [1, 2]))
    [error] = results(service, chunk("a", [3], position))
    assert error == f"position: {position} is not accepted; 2 tokens of the utterance were received before"
    assert_nothing_held(service, waves, voices)


def test_failed_batch_is_computed_again_row_by_row_and_only_the_guilty_one_fails(service, waves, voices):
    results(service, chunk("heard", [1]), chunk("a", [5]))
    outcomes = results(
        service, chunk("a", [6], 1), chunk("bad", [BROKEN_TOKEN]), chunk("heard", [2], 1, last=True)
    )
    assert outcomes == [[6], "this row can't be computed", [2]]
    assert waves.batches[1:] == [[[6], [BROKEN_TOKEN], [2]], [[6]], [[BROKEN_TOKEN]], [[2]]]
    assert results(service, chunk("a", [7], 2, last=True)) == [[7]]
    assert_nothing_held(service, waves, voices)


def test_batch_on_a_lost_gpu_is_not_tried_again(service, waves):
    outcomes = service.run([chunk("a", [LOST_GPU_TOKEN]), chunk("b", [3])])
    assert all(is_fatal(outcome) for outcome in outcomes)
    assert waves.batches == [[[LOST_GPU_TOKEN], [3]]]


def test_errors_have_types_that_say_what_to_do(service):
    wrong = [chunk("a", voice_key="new"), chunk("b", noise_seed=-1), chunk("c", position=3)]
    assert [type(outcome) for outcome in service.run(wrong)] == [NotFoundError, InvalidInput, NotFoundError]


def test_idle_utterance_is_dropped_at_the_next_call_for_another(service, waves, voices, clock):
    results(service, chunk("idle", [1]), chunk("busy", [1]))
    clock.now = IDLE_S - 1
    assert results(service, chunk("busy", [2], 1)) == [[2]]
    clock.now = IDLE_S + 1
    assert results(service, chunk("busy", [3], 2)) == [[3]]
    assert service.usage().utterances == len(waves.open_states) == voices.users == 1
    [error] = results(service, chunk("idle", [2], 1))
    assert error.endswith("or was idle for 60 s")


def test_utterance_called_for_in_time_is_not_idle_however_long_it_lasts(service, clock):
    for position in range(5):
        clock.now += IDLE_S - 1
        assert results(service, chunk("a", [position], position)) == [[position]]


def test_utterance_is_not_idle_while_it_is_computed_however_long_that_takes(service, clock):
    outcomes = service.launch([chunk("a", [1, 2])])
    clock.now += IDLE_S + 1
    service.sweep()
    assert [outcome.tolist() for outcome in outcomes()] == [[1, 2]]
    assert results(service, chunk("a", [3], 2)) == [[3]]


def test_timer_drops_the_last_idle_utterance_without_any_call(waves, voices):
    opened, dropped = threading.Event(), threading.Event()

    def watch(usage):
        if usage.utterances:
            opened.set()
        elif opened.is_set():
            dropped.set()

    service = WaveService(waves, voices, idle_timeout_s=0.5, on_change=watch)
    results(service, chunk("a", [1]))
    assert dropped.wait(TIMEOUT_S)
    assert_nothing_held(service, waves, voices)
    service.close()


def test_timer_that_could_not_be_started_is_set_by_the_next_change(waves, voices, monkeypatch):
    dropped = threading.Event()
    service = WaveService(waves, voices, idle_timeout_s=0.05)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Timer, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        assert results(service, chunk("a", [1])) == [[1]]
    service._on_change = lambda usage: usage.utterances or dropped.set()
    assert results(service, chunk("b", [1])) == [[1]]
    assert dropped.wait(TIMEOUT_S)
    service.close()


def test_close_frees_everything_and_leaves_no_timer(service, waves, voices):
    before = timers()
    results(service, chunk("a", [1]), chunk("b", [1]))
    results(service, chunk("a", [1], 1, last=True))
    [timer] = timers() - before
    service.close()
    assert_nothing_held(service, waves, voices)
    timer.join(TIMEOUT_S)
    assert not timers() - before


def timers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)}


def test_usage_is_told_at_first_and_after_every_call(waves, voices, clock):
    told = []
    service = WaveService(waves, voices, IDLE_S, told.append, clock)
    results(service, chunk("a", [1]), chunk("b", [1]))
    results(service, chunk("a", [1], 1, last=True))
    service.close()
    service.sweep()  # of a timer that rang meanwhile
    service.close()
    assert [usage.utterances for usage in told] == [0, 2, 1, 0]
