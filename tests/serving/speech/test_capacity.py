"""What a machine is found to keep up with: machines that are made of numbers, and a clock that is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from cosyvoice_runtime.errors import ClientGoneError
from cosyvoice_runtime.serving.speech.admission import Admission, open_board
from cosyvoice_runtime.serving.speech.capacity import (
    FIRST_MARGIN,
    LEAST_MARGIN,
    MEMORY_S,
    MOST_LEARNED,
    MOST_MARGIN,
    Capacity,
)
from standing_clock import StandingClock


@pytest.fixture
def capacity() -> Capacity:
    return Capacity(open_board(None)["learned"])


def speak(capacity: Capacity, speed: Callable[[int], float], wanted: int, chunks: int = 200) -> None:
    """As many as are wanted and admitted, on a machine that makes ``speed(n)`` seconds a second for n."""
    for _ in range(chunks):
        crowd = min(wanted, capacity.limit)
        capacity.spoke(1.0, crowd / speed(crowd), crowd)


def cpu(crowd: int) -> float:
    return 4.0


def gpu(crowd: int) -> float:
    return 100.0 * crowd / (crowd + 9)


def test_one_utterance_is_admitted_when_nothing_is_known(capacity):
    assert capacity.limit == 1


def test_fixed_limit_stays(capacity):
    capacity.fix(7)
    speak(capacity, cpu, wanted=50)
    assert capacity.limit == 7


def test_measured_speed_is_where_it_starts(capacity):
    capacity.start(10.0)
    assert capacity.limit == int(10.0 / FIRST_MARGIN)


@pytest.mark.parametrize("before", [0.5, 4.0, 100.0])
def test_busy_machine_finds_its_limit_from_wherever_it_starts(capacity, before):
    capacity.start(before)
    speak(capacity, cpu, wanted=50)
    assert capacity.limit == int(4.0 / FIRST_MARGIN)


def test_machine_that_speaks_faster_to_many_grows_into_its_limit(capacity):
    capacity.start(gpu(1))
    speak(capacity, gpu, wanted=500, chunks=5000)
    limit = capacity.limit
    assert gpu(limit) / limit == pytest.approx(FIRST_MARGIN, rel=0.05)


def test_every_listener_of_a_full_machine_is_given_more_than_he_hears(capacity):
    for speed in (cpu, gpu):
        speak(capacity, speed, wanted=500, chunks=5000)
        assert speed(capacity.limit) / capacity.limit >= 1.0


def test_quiet_hour_does_not_lower_the_limit(capacity):
    capacity.start(gpu(1))
    speak(capacity, gpu, wanted=500, chunks=5000)
    limit = capacity.limit
    speak(capacity, gpu, wanted=1, chunks=5000)
    assert capacity.limit >= limit


def test_machine_that_others_slow_down_admits_fewer(capacity):
    speak(capacity, cpu, wanted=50)
    speak(capacity, lambda crowd: 7.0, wanted=50)
    assert capacity.limit == int(7.0 / FIRST_MARGIN)


def test_late_chunks_lower_the_limit_and_chunks_in_time_raise_it_again(capacity):
    capacity.start(40.0)
    before = capacity.limit
    for second in range(1, 21):
        capacity.played(late=True, now_s=second)
    assert capacity.limit < 0.7 * before
    for _ in range(100_000):
        capacity.played(late=False, now_s=21)
    assert capacity.limit == int(40.0 / LEAST_MARGIN)


@pytest.mark.parametrize(("late_every", "grows"), [(3000, True), (300, False)])
def test_limit_settles_where_one_of_a_hundred_utterances_has_a_late_chunk(capacity, late_every, grows):
    capacity.start(40.0)
    before = capacity.limit
    for chunk in range(20_000):
        capacity.played(late=chunk % late_every == 0, now_s=1 + chunk / 10)
    assert (capacity.limit > before) is grows


def test_one_stall_counts_once_however_many_listeners_it_makes_late(capacity):
    capacity.start(150.0)
    before = capacity.limit
    for listener in range(60):
        capacity.played(late=True, now_s=100 + listener / 100)
    assert capacity.limit >= 0.95 * before


def test_limit_has_bounds(capacity):
    capacity.start(1e6)
    assert capacity.limit == MOST_LEARNED
    for second in range(1, 1000):
        capacity.played(late=True, now_s=second)
    capacity.start(0.001)
    assert capacity.limit == 1
    capacity.start(MOST_MARGIN * 3)
    assert capacity.limit == 3


FIRST, LATER = (0.4, 0.8), (1.0, 0.3)
"""The seconds of speech of a chunk, and those that it takes: the first needs prompt and text."""
WHOLE = (FIRST, LATER, LATER, LATER)
WHOLE_SPEED = (0.4 + 3 * 1.0) / (0.8 + 3 * 0.3)


def machine(limit: int | None = None) -> tuple[Admission, StandingClock]:
    clock = StandingClock()
    admission = Admission(limit, now=clock)
    admission.capacity.start(WHOLE_SPEED)
    return admission, clock


def utter(
    admission: Admission, clock: StandingClock, chunks: tuple[tuple[float, float], ...], leaves: bool = False
) -> None:
    """Speak an utterance alone; its client listens to the end, or leaves after these chunks."""
    with suppress(ClientGoneError), admission.admit() as admitted:
        for audio_s, took_s in chunks:
            clock.time += took_s
            admitted.spoke(audio_s)
        if leaves:
            clock.time += 0.1
            raise ClientGoneError


@pytest.mark.parametrize("chunks", [(), (FIRST,), (FIRST, LATER)])
def test_clients_that_leave_teach_nothing_beyond_what_the_others_show(chunks):
    admission, clock = machine()
    for _ in range(50):
        for _ in range(9):
            utter(admission, clock, chunks, leaves=True)
        utter(admission, clock, WHOLE)
    assert admission.capacity.speed == pytest.approx(WHOLE_SPEED)


def test_work_for_a_client_that_leaves_amid_a_chunk_of_another_is_work():
    """Two at a time have half of the machine each: what comes later shows no slower machine."""
    admission, clock = machine(limit=2)
    for _ in range(50):
        with admission.admit() as admitted:
            for audio_s, took_s in WHOLE:
                clock.time += took_s / 2
                with suppress(ClientGoneError), admission.admit():
                    clock.time += took_s
                    admitted.spoke(audio_s)
                    raise ClientGoneError
    assert admission.capacity.speed == pytest.approx(WHOLE_SPEED)


def test_time_in_which_an_utterance_waits_for_a_verifier_teaches_nothing():
    admission, clock = machine(limit=1)
    for _ in range(50):
        with admission.admit() as judged:
            for audio_s, took_s in WHOLE:
                clock.time += took_s
                judged.spoke(audio_s)
            with judged.aside():
                utter(admission, clock, WHOLE)
                clock.time += 5.0
    assert admission.capacity.speed == pytest.approx(WHOLE_SPEED)


def test_clients_that_hear_a_first_chunk_alone_raise_no_limit():
    admission = Admission(None)
    admission.capacity.start(40.0)
    for _ in range(10_000):
        with suppress(ClientGoneError), admission.admit() as admitted:
            admitted.played(late=False)
            raise ClientGoneError
    assert admission.capacity.limit == int(40.0 / FIRST_MARGIN)


def test_long_utterance_teaches_before_it_ends():
    admission, clock = machine()
    with admission.admit() as admitted:
        while clock.time < 100.0 + 2 * MEMORY_S:
            clock.time += 1.0
            admitted.spoke(1.0)
        assert admission.capacity.speed == pytest.approx(1.0)
