"""Parts of the fleet that are killed or frozen while six people listen."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import SHORT, TEXT, Listener, difference, listening
from drills.outcome import Outcome, resumes
from drills.speech_server import SpeechServer

LISTENERS = 6
AWAY_S = 1.0
"""How long a part is away that somebody starts again."""
NOTICED_S = 5.0
"""Longer than it takes until a hung server is not asked any more."""
Strike = Callable[[], None]


def while_six_listen(
    fleet: Fleet, fronts: Sequence[Front], strike: Strike, text: str = TEXT, key: str = "none"
) -> Outcome:
    """Whether six listeners hear what they would have heard without the blow.

    Args:
        strike: does what it does when all six hear something.
        key: of the listeners.
    """
    outcome = Outcome()
    uncut = Listener(fronts[0], text, key).whole
    fleet.wait_for_silence()
    before = resumes(fronts, key)
    with listening(fronts, LISTENERS, text, key=key) as listeners:
        assert {listener.begin() for listener in listeners} == {200}
        strike()
        for listener in listeners:
            try:
                fault = difference(listener.whole, uncut)
            except AssertionError as error:
                fault = str(error)
            outcome.faults += [fault] if fault else []
    outcome.resumed = resumes(fronts, key) - before
    outcome.hear(listeners)
    return outcome


def frozen(fleet: Fleet, fronts: Sequence[Front]) -> Outcome:
    """Whether six go on listening when a server freezes, and others who ask then are served elsewhere."""
    asked: list[Listener] = []

    def strike() -> None:
        busiest(fleet).freeze()
        asked.extend(Listener(front, SHORT) for front in (*fronts, *fronts))
        for listener in asked:
            listener.end()

    return _with_first_audio(while_six_listen(fleet, fronts, strike), asked)


def beside_hung(fleet: Fleet, fronts: Sequence[Front]) -> Outcome:
    """Whether who asks is served elsewhere when balancers have noticed that a tritonserver hangs.

    Its gateway does not, and answers what keeps connections alive.
    """
    fleet.servers[0].strike("tritonserver", signal.SIGSTOP)
    time.sleep(NOTICED_S)
    return _with_first_audio(Outcome(), [Listener(front, SHORT) for front in (*fronts, *fronts)])


def _with_first_audio(outcome: Outcome, asked: Sequence[Listener]) -> Outcome:
    """The outcome, to which those are added who asked in the meantime."""
    statuses = [listener.end() for listener in asked]
    outcome.faults += [] if statuses == [200] * len(statuses) else [f"statuses {statuses}"]
    outcome.took_s["longest to first audio"] = max(each.timeline.ttfb_s or 0.0 for each in asked)
    outcome.hear(asked)
    return outcome


def busiest(fleet: Fleet) -> SpeechServer:
    """The server with the most utterances in progress, of which there is one at least."""
    server = max((each for each in fleet.servers if each.running), key=lambda each: each.speaking)
    assert server.speaking, "nobody speaks any more"
    return server


def kill(fleet: Fleet) -> None:
    """SIGKILL to all processes of the busiest server."""
    busiest(fleet).kill()


def kill_two(fleet: Fleet) -> None:
    """SIGKILL to two servers at once."""
    first, second = sorted(fleet.servers, key=lambda each: each.speaking)[1:]
    first.freeze()
    second.kill()
    first.kill()


def kill_one_after_the_other(fleet: Fleet) -> None:
    """SIGKILL to a server, and to the one that goes on with its streams."""
    busiest(fleet).kill()
    time.sleep(AWAY_S)
    busiest(fleet).kill()


def kill_part(part: str) -> Callable[[Fleet], None]:
    """SIGKILL to one process of the busiest server."""
    return lambda fleet: busiest(fleet).strike(part)


def freeze_part(part: str) -> Callable[[Fleet], None]:
    """SIGSTOP to one process of the busiest server."""
    return lambda fleet: busiest(fleet).strike(part, signal.SIGSTOP)


def restart_balancer(fleet: Fleet) -> None:
    """SIGKILL to the balancer, which somebody starts again."""
    fleet.balancer.kill()
    time.sleep(AWAY_S)
    fleet.balancer.begin()
