"""A rolling restart of all servers, under people who never stop listening."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import EndlessListener, Listener, Samples, difference, served_at_last
from drills.outcome import Outcome, resumes
from drills.waiting import wait_until
from drills.wires import ToldError, cartesia, omni

LISTENERS = 6
"""Listeners beside two sockets; two servers have room for all, if none has more than the other."""
TRIES = 3
"""How often OpenAI's clients ask before they tell of a refusal."""
SENTENCE = "word " * 6
"""Three seconds of speech."""
Hear = Callable[[], str | None]


def rolling_restart(fleet: Fleet, fronts: Sequence[Front], alone: Front) -> Outcome:
    """Whether all hear the same speech, whatever server is stopped.

    Args:
        fronts: of which one has a socket of each kind.
        alone: through which each speech is heard first, before anybody else comes.
    """
    outcome, before = Outcome(), resumes(fronts)
    heard: list[Listener] = []
    listeners = (*_speech(fronts, alone, heard, outcome), *_texts(fronts, alone, outcome))
    endless = [EndlessListener(hear) for hear in listeners]
    begun = time.monotonic()
    try:
        for server in fleet.servers:
            counts = [each.heard for each in endless]
            server.restart()
            wait_until(lambda: fleet.balancer.healthy == len(fleet.servers), "the balancer misses a server")
            # Each has heard something since, so that the next restart is not the first thing that it hears.
            wait_until(partial(_all_have_heard, endless, counts), "somebody hears nothing")
    finally:
        for each in endless:
            each.stop()
    outcome.took_s["until all are restarted"] = time.monotonic() - begun
    outcome.faults += [each.complaint for each in endless if each.complaint]
    outcome.hear(heard)
    outcome.requests = sum(each.heard for each in endless)
    outcome.resumed = resumes(fronts) - before
    return outcome


def _speech(fronts: Sequence[Front], alone: Front, heard: list[Listener], outcome: Outcome) -> list[Hear]:
    """Listeners to the same sentence again and again, which come back if they are told to."""
    uncut = Listener(alone, SENTENCE).whole

    def hear(front: Front) -> str | None:
        tries = served_at_last(front, SENTENCE, TRIES)
        outcome.refused += len(tries) - 1
        heard.append(tries[-1])
        return difference(tries[-1].whole, uncut)

    return [partial(hear, fronts[number % len(fronts)]) for number in range(LISTENERS)]


def _texts(fronts: Sequence[Front], alone: Front, outcome: Outcome) -> list[Hear]:
    """Listeners to the same text, which goes in pieces over a socket of each kind.

    They come back if they are told to, as listeners to speech do.
    """

    def hear(say: Callable[[Front], Samples], front: Front, uncut: Samples) -> str | None:
        for _ in range(TRIES - 1):
            try:
                return difference(say(front), uncut)
            except ToldError as error:
                if error.again_s is None:
                    raise
                outcome.refused += 1
                time.sleep(error.again_s)
        return difference(say(front), uncut)

    return [
        partial(hear, say, front, say(alone)) for say, front in zip((cartesia, omni), fronts, strict=True)
    ]


def _all_have_heard(endless: Sequence[EndlessListener], counts: Sequence[int]) -> bool:
    """Whether each has heard more than that, or has something to complain of."""
    return all(each.complaint or each.heard > count for each, count in zip(endless, counts, strict=True))
