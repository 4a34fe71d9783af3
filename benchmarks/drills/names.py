"""Voices with names: known everywhere soon after they are sent, forgotten as soon, each with one owner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

from cosyvoice_client import RefusedError, SpeechClient, SpeechRequest
from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import SEED, SHORT, Listener, listening
from drills.outcome import Outcome
from drills.speech_server import SpeechServer
from drills.uploads import delete, recording, upload

SEEN_S, GONE_S = 1.0, 2.0
"""Within these all servers know a voice, and have forgotten it."""
WANTED = 20


def come_and_go(fleet: Fleet, fronts: Sequence[Front], name: str) -> Outcome:
    """Whether a voice that is sent to one front speaks everywhere, until the other one deletes it."""
    one, other = fronts
    checks = {"kept": upload(one, name, recording()).status == 200}
    time.sleep(SEEN_S)
    checks["known to all servers in time"] = all(speaks(server, name) for server in fleet.servers)
    fleet.wait_for_silence()
    with listening([other], fleet.places, voice=name) as listeners:
        checks["spoken with"] = {listener.begin() for listener in listeners} == {200}
        checks["spoken with by all servers"] = all(fleet.speaking)
    checks["deleted"] = delete(other, name) == 200
    time.sleep(GONE_S)
    checks["forgotten by all servers in time"] = not any(speaks(server, name) for server in fleet.servers)
    checks["refused by the fronts"] = Listener(one, SHORT, voice=name).end() == 404
    outcome = Outcome(requests=3, faults=[f"not {what}" for what, so in checks.items() if not so])
    outcome.hear(listeners)
    return outcome


def one_of_twenty(fleet: Fleet, fronts: Sequence[Front], name: str, wanted: int = WANTED) -> Outcome:
    """Whether one of many that want a name at once has it."""
    askers = list(islice(cycle(fronts), wanted))
    with ThreadPoolExecutor(wanted) as pool:
        answers = list(
            pool.map(lambda number: upload(askers[number], name, recording(1 + number / 100)), range(wanted))
        )
    outcome = Outcome(requests=wanted, refused=0)
    told = sorted(f"{answer.status} {answer.code}".strip() for answer in answers)
    if told != ["200"] + ["400 voice_exists"] * (wanted - 1):
        outcome.faults.append(f"answers: {told}")
    if not all(speaks(server, name) for server in fleet.servers):
        outcome.faults.append("a server does not know the voice")
    return outcome


def speaks(server: SpeechServer, name: str) -> bool:
    """Whether a server speaks with a voice, asked past the fronts."""
    request = SpeechRequest(SHORT, voice=name, seed=SEED)
    try:
        return bool(list(SpeechClient(server.grpc_url).speak(request)))
    except RefusedError:
        return False
