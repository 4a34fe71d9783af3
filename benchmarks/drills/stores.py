"""Bucket and Redis away and back again, and a front killed, while people listen."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence

from drills.deaths import while_six_listen
from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import SHORT, TEXT, Listener, difference, listening
from drills.names import speaks
from drills.outcome import Outcome
from drills.uploads import recording, upload
from drills.waiting import wait_until


def bucket_away(fleet: Fleet, fronts: Sequence[Front], name: str) -> Outcome:
    """Whether a bucket that is away costs voices alone that nobody has spoken with.

    Args:
        fronts: that keep voices in it.
        name: beginning of the voices' names.
    """
    unheard, kept = f"{name}-unheard", f"{name}-kept"
    assert [upload(fronts[0], each, recording()).status for each in (unheard, kept)] == [200, 200]
    assert [Listener(front, SHORT, voice=kept).end() for front in fronts] == [200] * len(fronts)
    assert all(speaks(server, kept) for server in fleet.servers)
    reference = {"ref_audio": b64encode(recording()).decode(), "ref_text": "A tone."}
    told: list[int] = []
    took_s: dict[str, float] = {}

    def away() -> None:
        fleet.bucket.kill()
        told.append(Listener(fronts[0], SHORT, voice=unheard).end())
        told.extend(Listener(front, SHORT, voice=kept).end() for front in [*fronts] * 2)
        told.extend(Listener(front, SHORT, **reference).end() for front in fronts)
        fleet.bucket.start()
        took_s["until a new voice speaks again"] = wait_until(
            lambda: Listener(fronts[0], SHORT, voice=unheard).end() == 200, "a voice does not come back"
        )

    outcome = while_six_listen(fleet, fronts, away)
    outcome.took_s = took_s
    outcome.faults += [] if told == [503] + [200] * (len(told) - 1) else [f"statuses {told}"]
    return outcome


def front_killed(fleet: Fleet, fronts: Sequence[Front]) -> Outcome:
    """Whether a front that is killed costs its own streams alone, and leaves no place taken."""
    killed, other = fronts
    uncut = Listener(other, TEXT).whole
    fleet.wait_for_silence()
    outcome = Outcome()
    with listening([killed], 3, TEXT) as cut, listening([other], 3, TEXT) as whole:
        assert {each.begin() for each in (*cut, *whole)} == {200}
        killed.kill()
        struck = time.monotonic()
        outcome.took_s["until its places are free"] = wait_until(
            lambda: sum(fleet.speaking) <= len(whole), "places of a killed front stay taken"
        )
        outcome.faults += [fault for each in whole if (fault := difference(each.whole, uncut))]
        outcome.faults += ["its stream was not cut" for each in cut if each.end() == 200 and not each.failure]
        killed.begin()
        killed.wait()
        killed.wait_until_ready()
        outcome.took_s["until it speaks again"] = time.monotonic() - struck
        outcome.faults += [fault for fault in [difference(Listener(killed, TEXT).whole, uncut)] if fault]
    outcome.hear(whole)
    outcome.requests += len(cut)
    return outcome
