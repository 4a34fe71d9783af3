"""Who is spoken to now, and who is told to come back: as many as the machine keeps up with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.speech.capacity import Capacity
from cosyvoice_runtime.serving.speech.places import SharedPlaces
from cosyvoice_runtime.serving.speech.tickets import UNNAMED, Tickets

SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.1, 30.0
"""Of what a refused client is told."""
FIRST_WAIT_S = 0.4
"""Longest wait that the next in turn is told, so that it is there soon after a place has become free."""
KEPT_S = 0.5
"""How long a place that has become free is kept for those whose turn it is. Many who were refused never come
back, so it is anybody's then."""
USUAL_STAY_S = 2.0
"""How long an utterance takes before the first has ended."""
STAY_SHARE = 0.1
"""Share of the latest utterance in the mean of how long they take."""


class Admission:
    """SharedPlaces for utterances, for all processes with the same file.

    Refusing at once, and not after a wait, tells a client to try elsewhere; a queue would only hide that the
    machine is full, and its first audio would come late for everybody.

    Clients take turns: who was refused and comes back when told goes before those who come later, or again;
    a place that has become free is kept a moment for them.
    A named client waits once, however many requests it has, so that one with many does not get more.

    Args:
        limit: places; None for as many as the machine keeps up with.
        path: file that the processes share; None for a limit of this process alone.
        now: monotonic seconds, the same for all processes.
    """

    def __init__(
        self, limit: int | None, path: Path | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = SharedPlaces(path)
        board = self._places.board
        self.capacity = Capacity(board["learned"], limit)
        self._tickets = Tickets(board["tickets"])
        self._board = board
        self.now = now

    @property
    def count(self) -> int:
        """Utterances in progress."""
        return self._places.held().total()

    def expected_s(self, audio_s: float) -> float:
        """Seconds until so much more speech of one utterance is there, as those in progress share the
        machine; 0 when its speed isn't known."""
        speed = self.capacity.speed
        return audio_s * max(self.count, 1) / speed if speed else 0.0

    @contextmanager
    def place(self, client: str | None = None) -> Iterator[Stay]:
        """Hold a place.

        Args:
            client: name of who asks; None shares with all others without a name.

        Raises:
            OverloadedError: none is free; it says when there may be one.
        """
        number = self._take(client_number(client))
        stay = Stay(self)
        try:
            yield stay
        finally:
            self._leave(number, stay.start_s)

    def beside(self) -> AbstractContextManager[Stay]:
        """No place: for a probe, which must not take a client's. Nothing is learned from it."""
        return nullcontext(Stay(self, learns=False))

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the first place, which is nobody's turn; yields whether it was free."""
        number = self._places.take(1, UNNAMED)
        try:
            yield number is not None
        finally:
            if number is not None:
                self._places.leave(number)

    def _take(self, client: int) -> int:
        now, limit, held = self.now(), self.capacity.limit, self.count
        ticket = self._tickets.find(client, now)
        kept_until_s = float(self._board["freed_s"]) + KEPT_S
        kept = self._tickets.ahead(client, ticket, now, kept_until_s) if now < kept_until_s else 0
        place = self._places.take(limit, client) if held + kept < limit else None
        if place is None:
            ahead = self._tickets.ahead(client, ticket, now)
            wait_s = self._wait_s(ahead, self._tickets.others(ticket, now))
            wait_s = min(wait_s, KEPT_S) if held < limit else wait_s
            self._tickets.issue(client, ticket, now, now + wait_s)
            raise OverloadedError(_reason(held, limit), wait_s)
        if ticket is not None:
            self._tickets.drop(ticket)
        return place

    @property
    def _turn_s(self) -> float:
        """Seconds from one place that becomes free to the next."""
        return (float(self._board["stay_s"]) or USUAL_STAY_S) / self.capacity.limit

    def _wait_s(self, ahead: int, others_s: float) -> float:
        """When those ahead will have had their places, in tenths of a second.

        Args:
            others_s: until the client's own other requests come back; each has to wait for a turn of its own.
        """
        if others_s:
            wait_s = others_s + self._turn_s * (ahead + 1)
        elif ahead:
            wait_s = self._turn_s * (ahead + 0.5)  # the next place becomes free at any time of a turn
        else:
            wait_s = min(0.5 * self._turn_s, FIRST_WAIT_S)
        return math.ceil(10 * min(max(wait_s, SHORTEST_WAIT_S), LONGEST_WAIT_S)) / 10

    def _leave(self, place: int, since_s: float) -> None:
        now = self.now()
        self._places.leave(place)
        mean_s = float(self._board["stay_s"]) or now - since_s
        self._board["stay_s"] = mean_s + STAY_SHARE * (now - since_s - mean_s)
        self._board["freed_s"] = now


class Stay:
    """An utterance's time in its place, from which the capacity is learned.

    Args:
        learns: whether the capacity is.

    Attributes:
        start_s: when it was admitted.
    """

    def __init__(self, admission: Admission, learns: bool = True) -> None:
        self._admission = admission
        self._learns = learns
        self.start_s = self._last_s = admission.now()
        self._crowd = admission.count

    def spoke(self, audio_s: float) -> None:
        """Note a chunk that was made just now."""
        if not self._learns:
            return
        now, crowd = self._admission.now(), self._admission.count
        self._admission.capacity.spoke(audio_s, now - self._last_s, (self._crowd + crowd) / 2)
        self._last_s, self._crowd = now, crowd

    def played(self, late: bool) -> None:
        """Note whether its listener got a chunk too late."""
        if self._learns:
            self._admission.capacity.played(late, self._admission.now())


def client_number(name: str | None) -> int:
    """A number for a client's name, by which processes know it."""
    if not name:
        return UNNAMED
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") | 2


def _reason(held: int, limit: int) -> str:
    if held >= limit:
        return f"{held} utterances are in progress, the limit"
    return f"{held} utterances are in progress, and others were here before"
