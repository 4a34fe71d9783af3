"""Streaming over gRPC without asyncio."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import aclosing
from functools import lru_cache

from cosyvoice_client.address import grpc_address
from cosyvoice_client.async_client import AsyncSpeechClient
from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.errors import ClientError
from cosyvoice_client.request import STREAMING_MODEL, SpeechRequest

CANCEL_WAIT_S = 5.0
THREAD = "cosyvoice-client"

Chunks = queue.SimpleQueue[AudioChunk | None]


class SpeechClient:
    """Speaks through a server's gRPC port. Safe for threads: every utterance has its own connection.

    Args:
        url: ``host:port``.
        timeout_s: longest wait for the next chunk.
        trace: adds the headers of the caller's trace to a dict, as :class:`AsyncSpeechClient` has it.

    Raises:
        InvalidArgumentError: the URL is none that gRPC can use.
    """

    def __init__(
        self,
        url: str = "localhost:8001",
        model: str = STREAMING_MODEL,
        timeout_s: float = 60.0,
        trace: Callable[[dict[str, str]], None] | None = None,
    ) -> None:
        self.url = grpc_address(url)
        self.model = model
        self.timeout_s = timeout_s
        self._trace = trace

    def speak(self, request: SpeechRequest, request_id: str = "") -> Generator[AudioChunk, None, None]:
        """Chunks in order. Closing the generator early cancels the request on the server.

        A loop that is left closes it when the generator is no longer referred to; ``contextlib.closing``
        does so at once.

        Raises:
            ClientError: the server can't be reached, refuses, or stays silent; chunks may have come before.
        """
        chunks: Chunks = queue.SimpleQueue()
        loop = _background()
        task = asyncio.run_coroutine_threadsafe(self._receive(request, request_id, chunks), loop)
        ended = False
        try:
            while (chunk := chunks.get()) is not None:
                yield chunk
            ended = True
            task.result()
        finally:
            if not ended:
                task.cancel()
                if threading.current_thread().name != THREAD:  # a collection of garbage may run there
                    _wait_for_end(chunks)

    async def _receive(self, request: SpeechRequest, request_id: str, chunks: Chunks) -> None:
        try:
            async with (
                AsyncSpeechClient(
                    self.url, self.model, timeout_s=self.timeout_s, trace=self._trace
                ) as client,
                aclosing(client.speak(request, request_id)) as stream,
            ):
                async for chunk in stream:
                    chunks.put(chunk)
        finally:
            chunks.put(None)


def _wait_for_end(chunks: Chunks) -> None:
    """Give the cancellation time to leave: the process may be about to end."""
    try:
        while chunks.get(timeout=CANCEL_WAIT_S) is not None:
            continue
    except queue.Empty:
        return


def _background() -> asyncio.AbstractEventLoop:
    """An event loop in a thread of its own, the same for all clients.

    Raises:
        ClientError: it runs in the process that this one was forked from, and gRPC's threads with it.
    """
    loop, process = _started()
    if process != os.getpid():
        raise ClientError("this process was forked from one that has spoken: start it by spawn")
    return loop


@lru_cache(maxsize=1)
def _started() -> tuple[asyncio.AbstractEventLoop, int]:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=THREAD, daemon=True).start()
    return loop, os.getpid()
