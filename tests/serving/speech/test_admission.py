"""Who gets a place, who is told to come back, and when: by a clock that stands still between the lines."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.speech.admission import LONGEST_WAIT_S, SPREAD_S, Admission, open_board
from standing_clock import StandingClock


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "board"


@pytest.fixture
def places():
    """Holds what is entered until the test ends."""
    with ExitStack() as stack:
        yield stack


def refusal(admission: Admission, client: str | None = None) -> OverloadedError:
    with pytest.raises(OverloadedError) as caught, admission.admit(client):
        pass
    return caught.value


def test_the_place_over_the_limit_is_refused_until_one_is_left(clock, places):
    admission = Admission(2, now=clock)
    places.enter_context(admission.admit())
    with admission.admit():
        error = refusal(admission)
        assert "2 utterances are in progress" in str(error)
        assert admission.count == 2
    clock.time += error.retry_after_s
    places.enter_context(admission.admit())
    assert admission.count == 2


def test_utterance_that_waits_for_a_verifier_gives_its_place_to_as_many_as_may_be_spoken(clock):
    admission = Admission(2, now=clock)
    with ExitStack() as stack:
        for _ in range(4):
            admitted = stack.enter_context(admission.admit())
            stack.enter_context(admitted.aside())
        refusal(admission)
    assert admission.count == 0
    with admission.admit() as admitted:
        with suppress(ZeroDivisionError), admitted.aside():
            assert admission.count == 0
            raise ZeroDivisionError
        assert admission.count == 1


def test_place_is_free_after_an_error():
    admission = Admission(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"), admission.admit():
            raise ValueError("broken")
    assert admission.count == 0


def test_places_of_a_process_that_died_are_free_for_its_successor(file, clock, places):
    died = Admission(2, file, clock)
    died.admit().__enter__()
    successor = Admission(2, file, clock)
    assert successor.count == 0
    for _ in range(2):
        places.enter_context(successor.admit())
    assert open_board(file)["held"] == 2
    refusal(successor)


def test_learned_speed_is_known_to_whoever_comes_later(file):
    Admission(None, file).capacity.start(15.0)
    assert Admission(None, file).capacity.limit == 7


def test_refused_client_is_told_when_the_utterances_before_it_will_have_ended(clock, places):
    admission = Admission(4, now=clock)
    with admission.admit():
        clock.time += 6.0  # how long an utterance takes, as far as is known
    for _ in range(4):
        places.enter_context(admission.admit())
    assert [refusal(admission).retry_after_s for _ in range(3)] == [0.4, 2.3, 3.8]


def test_hint_stands_at_the_end_of_the_text(places):
    admission = Admission(1)
    places.enter_context(admission.admit())
    assert str(refusal(admission)).endswith("; try again in 0.4 s")


def test_no_client_is_told_to_wait_for_ever(clock, places):
    admission = Admission(1, now=clock)
    places.enter_context(admission.admit())
    hints = [refusal(admission).retry_after_s for _ in range(2000)]
    assert LONGEST_WAIT_S < max(hints) <= LONGEST_WAIT_S + SPREAD_S


@pytest.mark.parametrize("name", [None, "greedy"])
def test_many_who_come_together_do_not_come_back_together(clock, places, name):
    admission = Admission(1, now=clock)
    places.enter_context(admission.admit())
    hints = [refusal(admission, name).retry_after_s for _ in range(500)]
    times = Counter(math.floor(hint) for hint in hints)
    assert max(times.values()) <= 2 * 500 / SPREAD_S


def test_those_who_come_back_are_not_counted_twice(clock, places):
    """Eight clients without a name who come back when told: the last one's wait does not grow."""
    admission = Admission(1, now=clock)
    places.enter_context(admission.admit())
    due = sorted(clock.time + refusal(admission).retry_after_s for _ in range(8))
    for _ in range(80):
        clock.time = due.pop(0)
        due = sorted([*due, clock.time + refusal(admission).retry_after_s])
    assert due[-1] - clock.time <= 8 * 2.0


def test_one_client_may_have_every_place_while_nobody_else_asks(places):
    admission = Admission(4)
    for _ in range(4):
        places.enter_context(admission.admit("greedy"))


def test_place_goes_to_the_client_that_was_refused_and_not_to_one_that_comes_again(clock, places):
    admission = Admission(2, now=clock)
    places.enter_context(admission.admit("greedy"))
    with admission.admit("greedy"):
        refusal(admission, "modest")
    assert "others were here before" in str(refusal(admission, "greedy"))
    places.enter_context(admission.admit("modest"))


def test_place_is_not_kept_for_a_client_that_does_not_come_back(clock, places):
    admission = Admission(2, now=clock)
    places.enter_context(admission.admit("greedy"))
    with admission.admit("greedy"):
        hint = refusal(admission, "gone").retry_after_s
    clock.time += hint + 2.0
    places.enter_context(admission.admit("greedy"))


def test_client_that_comes_back_too_early_keeps_its_turn(clock, places):
    admission = Admission(1, now=clock)
    with admission.admit():
        refusal(admission, "first")
        clock.time += 0.1
        second = refusal(admission, "second").retry_after_s
        assert refusal(admission, "first").retry_after_s < second
        clock.time += 0.8
    refusal(admission, "second")
    places.enter_context(admission.admit("first"))


def test_many_who_never_come_back_keep_nobody_from_a_place(clock):
    """Three times as many as there is room for, each with another name, who don't ask twice."""
    admission = Admission(3, now=clock)
    speaking: list[tuple[float, ExitStack]] = []
    admitted = 0
    for number in range(900):
        clock.time += 2.0 / 9
        while speaking and speaking[0][0] <= clock.time:
            speaking.pop(0)[1].close()
        place = ExitStack()
        with suppress(OverloadedError):
            place.enter_context(admission.admit(f"client {number}"))
            speaking.append((clock.time + 2.0, place))
            admitted += 1
    for _, place in speaking:
        place.close()
    assert admitted >= 0.6 * 300


def test_named_client_waits_behind_one_of_the_crowd_without_names_and_not_behind_all(clock, places):
    admission = Admission(1, now=clock)
    with admission.admit():
        for _ in range(20):
            refusal(admission)
        assert refusal(admission, "named").retry_after_s == 3.0  # a turn is 2 s
        assert refusal(admission).retry_after_s >= LONGEST_WAIT_S


def served_in_turn(clock: StandingClock, limit: int, names: list[str | None], rounds: int) -> list[int]:
    """How often clients are spoken to who come back when told, and at once when their 2 s have ended."""
    return served_by(Admission(limit, now=clock), clock, names, rounds * 2.0 * len(names) / limit)


def served_by(
    admission: Admission, clock: StandingClock, names: list[str | None], seconds: float
) -> list[int]:
    served = [0] * len(names)
    arrivals = [(clock.time + 0.001 * client, client) for client in range(len(names))]
    speaking: list[tuple[float, int, ExitStack]] = []
    until = clock.time + seconds
    while clock.time < until:
        if not arrivals or (speaking and speaking[0][0] <= arrivals[0][0]):
            clock.time, client, place = speaking.pop(0)
            place.close()
            served[client] += 1
            heapq.heappush(arrivals, (clock.time, client))
            continue
        clock.time, client = heapq.heappop(arrivals)
        place = ExitStack()
        try:
            place.enter_context(admission.admit(names[client]))
        except OverloadedError as error:
            heapq.heappush(arrivals, (clock.time + error.retry_after_s, client))
        else:
            speaking.append((clock.time + 2.0, client, place))
    for _, _, place in speaking:
        place.close()
    return served


@pytest.mark.parametrize(("clients", "limit"), [(16, 1), (16, 16), (64, 3), (256, 16)])
@pytest.mark.parametrize("named", [True, False])
def test_nobody_is_starved_among_clients_who_come_back_when_told(clock, named, clients, limit):
    names = [f"client {number}" if named else None for number in range(clients)]
    served = served_in_turn(clock, limit, names, rounds=6)
    assert min(served) >= 3


def test_client_with_many_requests_gets_no_more_turns_than_one_with_few(clock):
    served = served_in_turn(clock, 3, ["greedy"] * 60 + ["a"] * 4 + ["b"] * 4, rounds=6)
    greedy, a, b = sum(served[:60]), sum(served[60:64]), sum(served[64:])
    assert max(greedy, a, b) <= 1.5 * min(greedy, a, b)


def test_those_who_stay_when_a_crowd_leaves_soon_have_their_turns(clock):
    """Fifty turns for four; the crowd was refused by the first of them, and does not come back."""
    admission = Admission(1, now=clock)
    with admission.admit("first"):
        for number in range(300):
            refusal(admission, f"client {number}")
    served = served_by(admission, clock, ["first", "second", "third", "fourth"], seconds=100.0)
    assert min(served) >= 7
