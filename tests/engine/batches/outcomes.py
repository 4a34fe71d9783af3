"""What a scheduler's clients got."""

from __future__ import annotations

import threading

TIMEOUT_S = 120.0


class Outcomes:
    """What was delivered, in order."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, object]] = []
        self._changed = threading.Condition()

    def of(self, name: str):
        def deliver(outcome: object) -> None:
            text = str(outcome) if isinstance(outcome, Exception) else outcome.tolist()
            with self._changed:
                self.delivered.append((name, text))
                self._changed.notify_all()

        return deliver

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.delivered]

    def wait(self, number: int) -> bool:
        """Whether so many were delivered, soon."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.delivered) >= number, TIMEOUT_S)
