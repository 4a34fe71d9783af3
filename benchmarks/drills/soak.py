"""Clients of every kind for a long time, under one blow after the other, and what became of each request."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx2
from websockets.exceptions import WebSocketException

from drills.blows import Blows
from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import SHORT, Listener, Samples, difference
from drills.outcome import Outcome, resumes
from drills.speech_server import SpeechServer
from drills.uploads import delete, recording, upload
from drills.waiting import wait_until
from drills.wires import SOCKETS, ToldError
from measuring.server_processes import Holding, growths, held_by

logger = logging.getLogger(__name__)

SENTENCES = (SHORT, "word " * 8, "word " * 16)
SHARES = {
    "speech": 45,
    "cartesia": 12,
    "omni": 12,
    "a named voice": 8,
    "a voice of one's own": 4,
    "leave": 10,
    "mp3": 5,
    "bad input": 4,
}
VOICE = "soaked"
LOOK_S = 5.0
PAUSE_S = (0.1, 1.0)
"""Bounds of the time after which a client asks again."""
OVERLOADED = 503
NO_LIMIT = 1_000_000


def settings(fleet: Fleet) -> dict[str, Any]:
    """Settings of fronts with which every part of the fleet has something to do for them."""
    return {**fleet.voices, "limits_url": fleet.redis.url, "requests_per_minute": NO_LIMIT}


class CutError(Exception):
    """An answer that did not come to its end, or did not come."""


class RefusedError(Exception):
    """A client is told to come back."""


@dataclass
class Soaked:
    """
    Attributes:
        endings: how many requests ended how; each has one.
        blows: that were dealt, by name.
        held: by all processes of the fleet, from time to time.
        grown: what was more in the last third of the time than in the second.
        outcome: with what went wrong.
    """

    endings: Counter[str] = field(default_factory=Counter)
    blows: Counter[str] = field(default_factory=Counter)
    held: list[Holding] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def shown(self) -> dict[str, Any]:
        """All of it, for a file."""
        held = [asdict(self.held[0]), asdict(self.held[-1])] if self.held else []
        told = {"endings": self.endings, "blows": self.blows, "held": held, "grown": self.grown}
        return {**told, **asdict(self.outcome)}


class Soak:
    """Clients of a fleet that is dealt blows.

    Args:
        fronts: with these settings; some behind the balancer, some that know the servers.
    """

    def __init__(self, fleet: Fleet, fronts: Sequence[Front], seed: int = 0) -> None:
        self._fleet = fleet
        self._fronts = fronts
        self._seed = seed
        self._uncut: dict[str, Samples] = {}
        self._begun = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._blows = Blows(fleet, fronts, seed)
        self.soaked = Soaked()
        self._kinds: dict[str, Callable[[Front, random.Random], str]] = {
            "speech": self._speech,
            "cartesia": lambda front, _: self._text("cartesia", front),
            "omni": lambda front, _: self._text("omni", front),
            "a named voice": lambda front, _: self._ended(Listener(front, SHORT, voice=VOICE), "spoken"),
            "mp3": lambda front, _: self._ended(Listener(front, SHORT, response_format="mp3"), "spoken"),
            "a voice of one's own": self._keep_a_voice,
            "leave": self._leave,
            "bad input": self._send_bad_input,
        }

    def run(self, seconds: float, every_s: float, clients: int) -> Soaked:
        """Have clients ask, and deal a blow so often, for that time, or until all blows have been dealt."""
        self._hear_alone()
        before = resumes(self._fronts)
        threads = [threading.Thread(target=self._client, args=[number]) for number in range(clients)]
        watcher = threading.Thread(target=self._watch)
        begun = time.monotonic()
        for thread in (*threads, watcher):
            thread.start()
        try:
            for number in range(int(seconds // every_s)):
                _sleep_until(begun + (number + 0.5) * every_s)
                name = self._blows.next()
                self.soaked.blows[name] += 1
                logger.info("%s, and everything is back", name)
            _sleep_until(begun + seconds)
        finally:
            self._over.set()
            for thread in (*threads, watcher):
                thread.join()
        self._account(before)
        return self.soaked

    def _hear_alone(self) -> None:
        """Hear what everybody will hear, before anybody else comes."""
        for text in SENTENCES:
            self._uncut[text] = Listener(self._fronts[-1], text).whole
        for name, say in SOCKETS.items():
            self._uncut[name] = say(self._fronts[-1])
        assert upload(self._fronts[0], VOICE, recording()).status == 200
        wait_until(
            lambda: Listener(self._fronts[-1], SHORT, voice=VOICE).end() == 200, "the voice is unknown"
        )

    def _client(self, number: int) -> None:
        """One request after the other, of a kind by chance."""
        chance = random.Random(1000 * self._seed + number)
        while not self._over.is_set():
            front, asked = chance.choice(self._fronts), time.monotonic()
            [kind] = chance.choices(list(SHARES), list(SHARES.values()))
            with self._lock:
                self._begun += 1
            try:
                ending = self._kinds[kind](front, chance)
            except RefusedError:
                ending = "refused, to come back"
            except (CutError, OSError, AssertionError, httpx2.HTTPError) as error:
                ending = self._excuse(front, asked) or self._fault(f"{kind} at {front.name}: {error!r}")
            self._end(ending)
            self._over.wait(chance.uniform(*PAUSE_S))

    def _excuse(self, front: Front, asked: float) -> str | None:
        """Why a request had to fail: only with the front that it was sent to."""
        return "cut with its front" if self._blows.was_away(front, asked) else None

    def _fault(self, what: str) -> str:
        with self._lock:
            self.soaked.outcome.faults.append(what)
        return "failed"

    def _end(self, ending: str) -> None:
        with self._lock:
            self.soaked.endings[ending] += 1

    def _ended(self, listener: Listener, ending: str) -> str:
        """The ending of a request that was heard to its end."""
        status = listener.end()
        if status == OVERLOADED:
            raise RefusedError
        if status != 200 or listener.failure is not None:
            raise CutError(f"status {status}, {listener.failure!r}")
        return ending

    def _speech(self, front: Front, chance: random.Random) -> str:
        text = chance.choice(SENTENCES)
        listener = Listener(front, text)
        self._ended(listener, "")
        with self._lock:
            self.soaked.outcome.hear([listener])
        return self._compared(listener.whole, text)

    def _text(self, name: str, front: Front) -> str:
        try:
            return self._compared(SOCKETS[name](front), name)
        except ToldError as error:
            if error.status == OVERLOADED and not error.heard:
                raise RefusedError from None
            raise CutError(str(error)) from None
        except WebSocketException as error:
            raise CutError(repr(error)) from None

    def _compared(self, heard: Samples, name: str) -> str:
        wrong = difference(heard, self._uncut[name])
        return self._fault(f"{name!r}: {wrong}") if wrong else "spoken, the same samples"

    def _keep_a_voice(self, front: Front, chance: random.Random) -> str:
        """Send a voice, speak with it, and delete it; while the bucket is away all of it has to wait."""
        name = f"own-{chance.getrandbits(64):x}"
        statuses = [upload(front, name, recording()).status]
        while (listener := Listener(front, SHORT, voice=name)).end() == OVERLOADED:
            self._over.wait(PAUSE_S[0])
        statuses.append(listener.end())
        while (status := delete(front, name)) == OVERLOADED:
            time.sleep(PAUSE_S[0])
        statuses.append(status)
        if statuses != [200, 200, 200]:
            raise CutError(f"statuses {statuses} for a voice")
        return "kept, spoken with and deleted"

    def _leave(self, front: Front, chance: random.Random) -> str:
        listener = Listener(front, SENTENCES[-1])
        listener.begin()
        self._over.wait(chance.uniform(0, 1))
        if listener.status == OVERLOADED:
            raise RefusedError
        listener.leave()
        return "left by the client"

    def _send_bad_input(self, front: Front, chance: random.Random) -> str:
        status = Listener(front, SHORT, voice=f"nobody's {chance.random()}").end()
        if status == OVERLOADED:
            raise RefusedError
        if status != 404:
            raise CutError(f"status {status} for a voice that nobody has")
        return "refused for what it is"

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.soaked.held.append(self._holding())

    def _holding(self) -> Holding:
        """The sums of all processes of the fleet."""
        pids, prefixes = [], []
        for program in (*self._fleet.programs, *self._fronts):
            with suppress(AssertionError):  # It has not been started again.
                pids += program.pids()
                if isinstance(program, SpeechServer):
                    assert program.process is not None
                    prefixes += [f"cosyvoice_{program.process.pid}_"]
        return held_by(pids, prefixes)

    def _account(self, resumed_before: int) -> None:
        """Wait until no work is left, and check that each request has an end."""
        soaked, outcome = self.soaked, self.soaked.outcome
        self._fleet.heal()
        outcome.requests = self._begun
        outcome.refused = soaked.endings["refused, to come back"]
        outcome.resumed = max(0, resumes(self._fronts) - resumed_before)
        if soaked.endings.total() != self._begun:
            outcome.faults.append(f"{self._begun} requests have {soaked.endings.total()} endings")
        soaked.held.append(self._holding())
        soaked.grown = growths(soaked.held)
        delete(self._fronts[0], VOICE)


def _sleep_until(moment: float) -> None:
    """Sleep to a moment of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))
