"""The admission of utterances: as many as the machine keeps up with; others are told when to come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from cosyvoice_runtime.serving.speech.board import open_board
from cosyvoice_runtime.serving.speech.refusal_queue import RefusalQueue, client_number

DURATION_SHARE = 0.1
"""The share of the latest utterance in the mean duration."""


class Admission:
    """The capacity for utterances. One process admits them, and its gateways read from the board how many are
    in progress.

    Args:
        limit: most utterances; None for as many as the machine keeps up with.
        path: path of the board, which keeps what was learned if the process dies; None for a private board.
        now: monotonic seconds, the same for all processes.
    """

    def __init__(
        self, limit: int | None, path: Path | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._board = open_board(path)
        self._board["held"] = 0
        self._queue = RefusalQueue(self._board, now)
        self.capacity = self._queue.capacity
        self.capacity.fix(limit)
        self.now = now

    @property
    def count(self) -> int:
        """The utterances in progress."""
        return self._queue.count

    @contextmanager
    def place(self, client: str | None = None) -> Iterator[AdmittedUtterance]:
        """Admit an utterance for the time of the block.

        Args:
            client: name of the client; None counts as one client with all others without a name.

        Raises:
            OverloadedError: there is no capacity; the text says when there may be.
        """
        self._take(client_number(client))
        admitted = AdmittedUtterance(self)
        try:
            yield admitted
        finally:
            self._leave(admitted.start_s)

    def probe(self) -> AbstractContextManager[AdmittedUtterance]:
        """Run a probe without taking capacity from clients; nothing is learned from it."""
        return nullcontext(AdmittedUtterance(self, learns=False))

    def _take(self, client: int) -> None:
        self._queue.require(client)
        self._board["held"] += 1
        self._queue.over(client)

    def _leave(self, since_s: float) -> None:
        now = self.now()
        self._board["held"] -= 1
        mean_s = float(self._board["stay_s"]) or now - since_s
        self._board["stay_s"] = mean_s + DURATION_SHARE * (now - since_s - mean_s)
        self._board["freed_s"] = now


class AdmittedUtterance:
    """An admitted utterance, from which the capacity is learned.

    Args:
        learns: whether the capacity is learned from it.

    Attributes:
        start_s: time of its admission.
    """

    def __init__(self, admission: Admission, learns: bool = True) -> None:
        self._admission = admission
        self._learns = learns
        self.start_s = self._last_s = admission.now()
        self._crowd = admission.count

    def spoke(self, audio_s: float) -> None:
        """Note a chunk that was just made."""
        if not self._learns:
            return
        now, crowd = self._admission.now(), self._admission.count
        self._admission.capacity.spoke(audio_s, now - self._last_s, (self._crowd + crowd) / 2)
        self._last_s, self._crowd = now, crowd

    def played(self, late: bool) -> None:
        """Note whether a chunk reached its listener too late."""
        if self._learns:
            self._admission.capacity.played(late, self._admission.now())
