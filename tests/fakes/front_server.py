"""A front that listens on a port of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn

from cosyvoice_front.command import uvicorn_config
from cosyvoice_runtime.settings import Settings
from fake_upstream import FakeUpstream

T = TypeVar("T")
TIMEOUT_S = 60.0


class PromptServer(uvicorn.Server):
    """Ends as soon as it is told to; uvicorn's own looks ten times a second, and many tests would wait.

    At the end uvicorn also waits for a tenth of a second before it looks whether a client is still there.
    """

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
            await server.wait_closed()
        await self.lifespan.shutdown()


class RunningFront:
    """
    Attributes:
        upstream: what it speaks through.
        url: where it listens.
    """

    def __init__(self, settings: Settings, upstream: FakeUpstream | None) -> None:
        self._upstream = upstream
        config = uvicorn_config(settings, upstream)
        self._server = PromptServer(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="front")
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)

    @property
    def upstream(self) -> FakeUpstream:
        assert self._upstream is not None
        return self._upstream

    @property
    def port(self) -> int:
        return self._server.servers[0].sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def app(self) -> Any:
        return self._server.config.app

    @property
    def streams(self) -> int:
        """Utterances that hold a place."""
        return self.app.state.front.limits.streams

    @property
    def connections(self) -> int:
        """Of clients, those among them that are being closed."""
        return len(self._server.server_state.connections)

    def do(self, call: Callable[[], T]) -> T:
        """The result of a call made in the front's event loop."""

        async def done() -> T:
            return call()

        return self.wait(done())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine in the front's event loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that happens in the front's event loop."""

        async def wait() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                while not holds():
                    await asyncio.sleep(0.005)

        self.wait(wait())

    def begin_stop(self) -> None:
        """What SIGTERM does."""
        self._server.should_exit = True

    def stop(self) -> None:
        self.begin_stop()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self._started.set()
        await serving


@contextmanager
def running_front(
    upstream: FakeUpstream | None = None, grpc_url: str = "127.0.0.1:8001", **front: object
) -> Iterator[RunningFront]:
    """A front with these settings of its section, or of others with their names, around a fake or in front
    of a real server."""
    assignments = [
        f"{key if '.' in key else f'front.{key}'}={value}"
        for key, value in {"port": 0, "grpc_url": grpc_url, **front}.items()
    ]
    running = RunningFront(Settings.read(assignments), upstream)
    try:
        yield running
    finally:
        running.stop()
