"""Streams and graphs of CUDA without a GPU: work is noted down, and done when something waits for it.

Work that nothing waits for is never done, so a missing wait shows in the results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Work = Callable[[], None]


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str, handle: int) -> None:
        self._cuda, self.name, self.cuda_stream = cuda, name, handle
        self.capturing: list[Work] | None = None
        self._pending: list[Work] = []

    def submit(self, what: str, work: Work) -> None:
        if self.capturing is not None:
            self.capturing.append(work)
            return
        self._cuda.log(f"{what} on {self.name}")
        self._pending.append(work)

    def wait_stream(self, stream: FakeStream) -> None:
        self._cuda.log(f"{self.name} waits for {stream.name}")
        stream.flush()

    def wait_event(self, event: FakeEvent) -> None:
        self._cuda.log(f"{self.name} waits for event on {event.stream.name}")

    def record_event(self) -> FakeEvent:
        self._cuda.log(f"event on {self.name}")
        return FakeEvent(self)

    def synchronize(self) -> None:
        self._cuda.log(f"host waits for {self.name}")
        self.flush()

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        for work in pending:
            work()


class FakeEvent:
    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream


class FakeGraph:
    def __init__(self, cuda: FakeCuda, work: list[Work]) -> None:
        self._cuda, self._work = cuda, work

    def replay(self) -> None:
        def again() -> None:
            for work in self._work:
                work()

        self._cuda.current_stream().submit("replay", again)


class FakeCuda:
    """Has the methods of :class:`cosyvoice_runtime.tensorrt.engine.Cuda`."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self._streams = [FakeStream(self, "caller", 0)]
        self._on = threading.local()
        self._own = threading.local()
        self.events: list[str] = []

    @contextmanager
    def current(self) -> Iterator[None]:
        before, self._own.device = self.is_current, True
        try:
            yield
        finally:
            self._own.device = before

    @property
    def is_current(self) -> bool:
        """Whether this device is the calling thread's own."""
        return getattr(self._own, "device", False)

    def log(self, event: str) -> None:
        self.events.append(event)

    def stream(self, handle: int) -> FakeStream:
        return self._streams[handle]

    def current_stream(self) -> FakeStream:
        return getattr(self._on, "stream", self._streams[0])

    def new_stream(self) -> FakeStream:
        stream = FakeStream(self, f"engine {len(self._streams)}", len(self._streams))
        self._streams.append(stream)
        return stream

    @contextmanager
    def on(self, stream: FakeStream) -> Iterator[None]:
        before, self._on.stream = self.current_stream(), stream
        try:
            yield
        finally:
            self._on.stream = before

    def capture(self, stream: FakeStream, work: Callable[[], Any]) -> FakeGraph:
        self.log(f"capture on {stream.name}")
        stream.capturing = []
        work()
        captured, stream.capturing = stream.capturing, None
        return FakeGraph(self, captured)
