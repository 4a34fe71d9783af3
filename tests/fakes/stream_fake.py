"""A stream of a GPU, and its event, for who waits for it."""

from __future__ import annotations


class Work:
    """An event and the stream that it is on."""

    def __init__(self) -> None:
        self.done = False
        self.asked = self.waited_for = self.host_waits = 0

    def record_event(self) -> Work:
        return self

    def wait_event(self, event: Work) -> None:
        assert event is self
        self.waited_for += 1

    def query(self) -> bool:
        self.asked += 1
        return self.done

    def synchronize(self) -> None:
        self.host_waits += 1
