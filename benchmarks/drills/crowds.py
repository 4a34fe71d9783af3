"""As many listeners at once as there are places, and more."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import listening, served_at_last
from drills.outcome import Outcome
from drills.speech_server import PLACES

ROUNDS = 10
CROWD = 40


def as_many_as_places(fleet: Fleet, fronts: Sequence[Front], rounds: int = ROUNDS) -> Outcome:
    """Whether nobody is refused, and each server has as many."""
    outcome = Outcome()
    for _ in range(rounds):
        with listening(fronts, fleet.places) as listeners:
            statuses = [listener.begin() for listener in listeners]
            spread = fleet.speaking
        if statuses != [200] * fleet.places or spread != [PLACES] * len(fleet.servers):
            outcome.faults.append(f"statuses {statuses}, utterances {spread}")
        outcome.hear(listeners)
        fleet.wait_for_silence()
    return outcome


def more_than_places(fleet: Fleet, fronts: Sequence[Front], crowd: int = CROWD) -> Outcome:
    """Whether those who are refused hear when to come back, do so, and are served."""
    with ThreadPoolExecutor(crowd) as pool:
        tries = list(pool.map(served_at_last, [fronts[number % len(fronts)] for number in range(crowd)]))
    outcome = Outcome(refused=sum(len(each) - 1 for each in tries))
    waits = [each[-1].asked_s - each[0].asked_s for each in tries]
    outcome.took_s["longest until served"] = max(waits)
    outcome.hear([each[-1] for each in tries])
    outcome.faults += [] if outcome.refused >= crowd - fleet.places else ["too few were refused"]
    outcome.faults += [f"status {each[-1].end()}" for each in tries if each[-1].end() != 200]
    return outcome
