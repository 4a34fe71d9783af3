"""Utterances in progress: found by name, dropped when idle, and freed when no batch writes to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cosyvoice_runtime.engine.batches.voices import CachedVoice
from cosyvoice_runtime.errors import NotFoundError


@dataclass(eq=False)
class OpenUtterance:
    """An utterance in progress.

    Attributes:
        state: the networks' own state.
        received: speech tokens so far.
        used_at: time of the last call, by the store's clock.
        number: number of utterances opened before.
    """

    state: Any
    voice: CachedVoice
    used_at: float
    number: int
    received: int = 0


class Speaker(NamedTuple):
    """The pages of an utterance in progress.

    Attributes:
        number: number of utterances opened before.
        pages: pages that it alone holds.
        lost_pages: pages that it takes to be where it was when it lost them.
    """

    name: str
    number: int
    pages: int
    lost_pages: int


class Utterances:
    """The utterances in progress; one thread at a time changes them, and any thread finds single ones.

    Args:
        idle_timeout_s: longest time between two calls for one.
        clock: monotonic seconds.
    """

    def __init__(self, idle_timeout_s: float, clock: Callable[[], float]) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock
        self._utterances: dict[str, OpenUtterance] = {}
        self._opened = 0

    def __len__(self) -> int:
        return len(self._utterances)

    def __contains__(self, name: str) -> bool:
        return name in self._utterances

    def names(self) -> list[str]:
        return list(self._utterances)

    def add(self, name: str, state: Any, voice: CachedVoice) -> OpenUtterance:
        self._utterances[name] = OpenUtterance(state, voice, self._clock(), self._opened)
        self._opened += 1
        return self._utterances[name]

    def get(self, name: str) -> OpenUtterance:
        """Return an open utterance; a NotFoundError tells that it was never opened, or is over."""
        utterance = self.find(name)
        if utterance is None:
            limit = f"it was not opened, has ended or failed, or was idle for {self._idle_timeout_s:g} s"
            raise NotFoundError("utterance_id", name, limit)
        return utterance

    def number(self, name: str) -> int:
        """Number of utterances opened before this one; of one not in progress, the number so far."""
        utterance = self.find(name)
        return self._opened if utterance is None else utterance.number

    def find(self, name: str) -> OpenUtterance | None:
        """The utterance in progress of this name, if there is one."""
        return self._utterances.get(name)

    def by_coming(self) -> list[tuple[str, OpenUtterance]]:
        """All utterances with their names, the earliest first; for any thread."""
        return list(self._utterances.copy().items())

    def called_within(self, utterance: OpenUtterance, seconds: float) -> bool:
        """Whether the utterance was called within so many seconds."""
        return utterance.used_at > self._clock() - seconds

    def remove(self, name: str) -> OpenUtterance | None:
        return self._utterances.pop(name, None)

    def touch(self, names: Iterable[str]) -> None:
        """Note that these utterances are not idle."""
        for name in names:
            if name in self._utterances:
                self._utterances[name].used_at = self._clock()

    def idle(self) -> list[str]:
        """Utterances whose time is over."""
        end = self._clock() - self._idle_timeout_s
        return [name for name, utterance in self._utterances.items() if utterance.used_at <= end]

    def idle_in_s(self) -> float | None:
        """Time until the next utterance is idle, unless it is called; None without any."""
        if not self._utterances:
            return None
        oldest = min(utterance.used_at for utterance in self._utterances.values())
        return max(oldest + self._idle_timeout_s - self._clock(), 0.0)


class BatchesUnderWay:
    """The batches that are being computed, and ended utterances that they may still write to.

    Used with the lock of the utterances.

    Args:
        free: frees what an ended utterance held.
    """

    def __init__(self, free: Callable[[OpenUtterance], None]) -> None:
        self._free = free
        self._batches: list[frozenset[str]] = []
        self._ended: list[tuple[str, OpenUtterance]] = []

    @property
    def names(self) -> frozenset[str]:
        """Ids of the utterances in all batches."""
        return frozenset().union(*self._batches)

    def others(self, batch: frozenset[str]) -> frozenset[str]:
        """Ids of the utterances in all batches but this one."""
        return frozenset[str]().union(*(each for each in self._batches if each is not batch))

    def begin(self, batch: frozenset[str]) -> None:
        """Keep what the utterances of a batch hold until it has ended."""
        self._batches.append(batch)

    def end(self, batch: frozenset[str]) -> None:
        """Free ended utterances of a batch that are in no other one."""
        self._batches.remove(batch)
        self._free_ended()

    def leave(self, name: str, utterance: OpenUtterance) -> None:
        """Note an utterance's end; what it holds is freed when no batch under way may write there."""
        self._ended.append((name, utterance))
        self._free_ended()

    def _free_ended(self) -> None:
        under_way = self.names
        free = [utterance for name, utterance in self._ended if name not in under_way]
        self._ended = [(name, utterance) for name, utterance in self._ended if name in under_way]
        for utterance in free:
            self._free(utterance)
