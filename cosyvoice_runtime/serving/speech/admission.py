"""The admission of utterances: as many as the machine keeps up with; others are told when to come back.

``cosyvoice2`` admits them, and the gateways read from a shared file, the board, whether it would.
"""

from __future__ import annotations

import math
import mmap
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.speech.capacity import LEARNED, MEMORY_S, Capacity

UNNAMED = 1
"""The number of clients without a name. They are not distinguished: each refusal makes a ticket, and any such
client may use one that is due. A named client has one ticket for all its requests."""
ELSEWHERE = 0
"""The number of clients that ask another server when they are refused: they get no ticket."""
VALID_S = 1.0
"""The time for which a ticket stays valid after it is due."""
MOST_TICKETS = 1024
TICKETS = np.dtype([("client", "u8"), ("since_s", "f8"), ("due_s", "f8"), ("last_s", "f8")])
"""The fields of a ticket: the client, the start of its wait, and when its first and last request are
expected."""
TICK_S = 1e-6


class Tickets:
    """The tickets on the board.

    Args:
        table: ``MOST_TICKETS`` records of :data:`TICKETS`, shared by all processes; zero where unused.
    """

    def __init__(self, table: Any) -> None:
        self._client, self._since_s, self._due_s, self._last_s = (table[name] for name in TICKETS.names or ())

    def find(self, client: int, now: float) -> int | None:
        """The ticket for a request of this client."""
        mine = (self._client == client) & self._valid(now)
        if client == UNNAMED:
            mine &= self._due_s <= now
        found = np.flatnonzero(mine)
        return int(found[np.argmin(self._since_s[found])]) if len(found) else None

    def ahead(self, client: int, ticket: int | None, now: float, due_s: float = math.inf) -> int:
        """The number of older tickets that are expected until ``due_s``.

        For a named client all those without a name are one.
        """
        since_s = math.inf if ticket is None else self._since_s[ticket]
        before = self._valid(now) & (self._since_s < since_s) & (self._due_s <= due_s)
        unnamed = before & (self._client == UNNAMED)
        if client == UNNAMED:
            return int(np.count_nonzero(before))
        return int(np.count_nonzero(before & ~unnamed & (self._client != client)) + unnamed.any())

    def others(self, ticket: int | None, now: float) -> float:
        """The seconds until the last of the client's other requests is expected; 0 without any."""
        return max(0.0, float(self._last_s[ticket]) - now) if ticket is not None else 0.0

    def issue(self, client: int, ticket: int | None, now: float, due_s: float) -> None:
        """Tell a client when to come back; a client with a ticket keeps its queue position.

        When there are too many, the one due first makes room.
        """
        if ticket is None:
            ticket = int(np.argmin(self._last_s))
            self._client[ticket] = client
            self._since_s[ticket] = max(now, self._since_s.max() + TICK_S)
            self._due_s[ticket] = self._last_s[ticket] = due_s
        elif self._due_s[ticket] <= now:
            self._due_s[ticket] = due_s
        self._last_s[ticket] = max(self._last_s[ticket], due_s)

    def drop(self, ticket: int) -> None:
        """Remove the ticket of an admitted client."""
        self._last_s[ticket] = 0

    def _valid(self, now: float) -> Any:
        return (self._last_s > 0) & (self._last_s + VALID_S > now)


SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.1, 15.0
"""The bounds of the time that a refused client is told. After many clients have left, the rest waits no
longer than the second."""
SPREAD_S = 5.0
"""The spread that is added to longer waits, so that clients do not come back together."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Steps of this length, modulo one, are spread evenly after any number of them."""
FIRST_WAIT_S = 0.4
"""The longest wait of the next client in the queue, so that it comes soon after capacity is free."""
KEPT_S = 0.5
"""The time for which free capacity is reserved for the next clients in the queue. Many refused clients never
come back, so other clients get it afterwards."""
USUAL_DURATION_S = 2.0
"""The assumed duration of an utterance before the first has ended."""


class RefusalQueue:
    """Decides whether a client is admitted, without admitting it.

    Refusing at once, and not after a wait, tells a client to try elsewhere; a queue would only hide that the
    machine is full, and its first audio would come late for everybody.

    A client that was refused and comes back when told goes before those that come later, or again; capacity
    that has become free is kept a moment for it. A named client waits once, however many requests it has, so
    that one with many does not get more.

    Args:
        board: one record of :data:`BOARD`.
        now: monotonic seconds, the same for all processes.
    """

    def __init__(self, board: Any, now: Callable[[], float] = time.monotonic) -> None:
        self.capacity = Capacity(board["learned"])
        self.now = now
        self._board = board
        self._tickets = Tickets(board["tickets"])
        self._step = 0.0

    @property
    def count(self) -> int:
        """The utterances in progress."""
        return int(self._board["held"])

    def require(self, client: int) -> None:
        """Raise an error unless there is capacity for one more utterance.

        Args:
            client: number of the client, see :func:`client_number`.

        Raises:
            OverloadedError: there is none, or it is reserved for others; the text says when to come back.
        """
        now, limit, held = self.now(), self.capacity.limit, self.count
        ticket = self._tickets.find(client, now)
        kept_until_s = float(self._board["freed_s"]) + KEPT_S
        kept = self._tickets.ahead(client, ticket, now, kept_until_s) if now < kept_until_s else 0
        if held + kept >= limit:
            raise self._refusal(client, ticket, held)

    def over(self, client: int) -> None:
        """Remove the client from the queue."""
        ticket = self._tickets.find(client, self.now())
        if ticket is not None:
            self._tickets.drop(ticket)

    def _refusal(self, client: int, ticket: int | None, held: int) -> OverloadedError:
        now, limit = self.now(), self.capacity.limit
        ahead = self._tickets.ahead(client, ticket, now)
        wait_s = self._wait_s(ahead, self._tickets.others(ticket, now))
        wait_s = min(wait_s, KEPT_S) if held < limit else wait_s
        if client != ELSEWHERE:
            self._tickets.issue(client, ticket, now, now + wait_s)
        why = "the limit" if held >= limit else "and others were here before"
        return OverloadedError(f"{held} utterances are in progress, {why}", wait_s)

    @property
    def _interval_s(self) -> float:
        """The seconds between the ends of two utterances."""
        return (float(self._board["stay_s"]) or USUAL_DURATION_S) / self.capacity.limit

    def _wait_s(self, ahead: int, others_s: float) -> float:
        """The wait until those ahead in the queue are admitted, in tenths of a second.

        Args:
            others_s: seconds until the client's other requests come back; each has its own queue position.
        """
        if others_s:
            wait_s = others_s + self._interval_s * (ahead + 1)
        elif ahead:
            wait_s = self._interval_s * (
                ahead + 0.5
            )  # The next utterance may end at any time in this interval.
        else:
            wait_s = min(0.5 * self._interval_s, FIRST_WAIT_S)
        if wait_s > LONGEST_WAIT_S:
            self._step = (self._step + GOLDEN) % 1
            wait_s = LONGEST_WAIT_S + SPREAD_S * self._step
        return math.ceil(10 * max(wait_s, SHORTEST_WAIT_S)) / 10


def client_number(name: str | None, elsewhere: bool = False) -> int:
    """A number for a client's name, the same in all processes.

    Args:
        elsewhere: whether it asks another server when it is refused.
    """
    if elsewhere:
        return ELSEWHERE
    if not name:
        return UNNAMED
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") | 2


BOARD_FILE = "admission"
"""The name of the file in the directory of the server's run."""
BOARD = np.dtype(
    [
        ("learned", [(name, "f8") for name in LEARNED]),
        ("held", "i8"),
        ("stay_s", "f8"),
        ("freed_s", "f8"),
        ("tickets", TICKETS, MOST_TICKETS),
    ]
)
"""The fields of the file, all zero at first. ``cosyvoice2`` alone writes them, except for tickets, which
every process that refuses a client issues. Each number is written separately, so that a process that dies
leaves no torn record."""


def open_board(path: Path | None) -> Any:
    """One record of :data:`BOARD`, shared by all that open the file; None: of this process alone."""
    file: Any = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115
    with file:
        file.truncate(BOARD.itemsize)
        return np.frombuffer(mmap.mmap(file.fileno(), BOARD.itemsize), BOARD)[0]


DURATION_SHARE = 0.1
"""The share of the latest utterance in the mean duration."""


class Admission(RefusalQueue):
    """Admits utterances, which one process does; its gateways read from the board how many are in progress.

    Args:
        limit: most utterances; None for as many as the machine keeps up with.
        path: path of the board, which keeps what was learned if the process dies; None for a private board.
        now: monotonic seconds, the same for all processes.
    """

    def __init__(
        self, limit: int | None, path: Path | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(open_board(path), now)
        self._board["held"] = 0
        self._share_s, self._counted_s, self._aside = 0.0, self.now(), 0
        self.capacity.fix(limit)

    @contextmanager
    def admit(self, client: str | None = None, elsewhere: bool = False) -> Iterator[AdmittedUtterance]:
        """Admit an utterance for the time of the block.

        Args:
            client: name of the client; None counts as one client with all others without a name.
            elsewhere: whether it asks another server when it is refused.

        Raises:
            OverloadedError: there is no capacity; the text says when there may be.
        """
        number = client_number(client, elsewhere)
        self.require(number)
        self._change_count(1)
        self.over(number)
        admitted = AdmittedUtterance(self)
        start_s = self.now()
        try:
            yield admitted
            admitted.teach()
        finally:
            self._leave(start_s)

    def probe(self) -> AbstractContextManager[AdmittedUtterance]:
        """Run a probe without taking capacity from clients; nothing is learned from it."""
        return nullcontext(AdmittedUtterance(self, learns=False))

    def share_s(self) -> float:
        """The seconds of the whole machine that one utterance would have had if it were in progress since the
        start: of n at a time, each has 1/n.
        """
        return self._share_s + (self.now() - self._counted_s) / max(self.count, 1)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give an utterance's place to others for the time of the block, unless as many as may be spoken have
        done so. Where that has been taken by then, one more than the limit is spoken."""
        given = int(self._aside < self.capacity.limit)
        self._aside += given
        self._change_count(-given)
        if given:
            self._board["freed_s"] = self.now()
        try:
            yield
        finally:
            self._change_count(given)
            self._aside -= given

    def _change_count(self, by: int) -> None:
        self._share_s, self._counted_s = self.share_s(), self.now()
        self._board["held"] += by

    def _leave(self, since_s: float) -> None:
        now = self.now()
        self._change_count(-1)
        mean_s = float(self._board["stay_s"]) or now - since_s
        self._board["stay_s"] = mean_s + DURATION_SHARE * (now - since_s - mean_s)
        self._board["freed_s"] = now


class AdmittedUtterance:
    """An admitted utterance, from which the capacity is learned.

    Args:
        learns: whether the capacity is learned from it.
    """

    def __init__(self, admission: Admission, learns: bool = True) -> None:
        self._admission = admission
        self._learns = learns
        self._begun = False
        self._begin_part()

    def spoke(self, audio_s: float) -> None:
        """Note a chunk that was just made."""
        self._audio_s += audio_s
        if self._learns and self._admission.now() - self._since_s >= MEMORY_S:
            self.teach()
            self._begin_part()

    def teach(self) -> None:
        """Learn from what was spoken, at the end of the utterance or of a part of a long one."""
        if self._audio_s:
            held_s, share_s = self._admission.now() - self._since_s, self._admission.share_s() - self._had_s
            self._admission.capacity.spoke(self._audio_s, held_s, held_s / share_s)

    def played(self, late: bool) -> None:
        """Note a chunk that reached its listener, and whether too late, which the first one never is."""
        if self._learns and self._begun:
            self._admission.capacity.played(late, self._admission.now())
        self._begun = True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Use nothing of the machine for the time of the block: it teaches nothing, and others have the
        place."""
        begun_s, had_s = self._admission.now(), self._admission.share_s()
        try:
            with self._admission.aside():
                yield
        finally:
            self._since_s += self._admission.now() - begun_s
            self._had_s += self._admission.share_s() - had_s

    def _begin_part(self) -> None:
        self._audio_s, self._since_s, self._had_s = 0.0, self._admission.now(), self._admission.share_s()
