"""A GPU whose turns end when a test says so."""

from __future__ import annotations

import threading

import numpy as np
from coded_waves import CodedWaves

TIMEOUT_S = 120.0


class Gpu(CodedWaves):
    """Takes turns at once and computes each when it may.

    Attributes:
        most: turns that were under way together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[threading.Event] = []
        self.lost: set[int] = set()
        self.free = False
        self.most = self._ended = 0
        self._changed = threading.Condition()

    def launch(self, states):
        waves, end, number = super().launch(states), threading.Event(), len(self.turns)
        with self._changed:
            self.turns.append(end)
            self.most = max(self.most, len(self.turns) - self._ended)
            if self.free:
                end.set()
            self._changed.notify_all()

        def wait() -> list[np.ndarray]:
            assert end.wait(TIMEOUT_S)
            with self._changed:
                self._ended += 1
            if number in self.lost:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return waves()

        return wait

    def launched(self, turns: int) -> bool:
        """Whether so many turns were launched, soon."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.turns) >= turns, TIMEOUT_S)

    def finish_all(self) -> None:
        with self._changed:
            self.free = True
            for end in self.turns:
                end.set()


class Part(Gpu):
    """Another part of the same GPU: its utterances are the whole one's.

    Attributes:
        inside: contexts of its launches that are open.
    """

    def __init__(self, whole: CodedWaves) -> None:
        super().__init__()
        self.open_states = whole.open_states
        self.inside = 0

    def launch(self, states):
        assert self.inside == 1
        return super().launch(states)

    def __enter__(self) -> None:
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1
