"""Speech of a text that comes piece by piece, as from a language model whose answer is spoken."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Any

import tritonclient.grpc as triton

from cosyvoice_client.chunk import AudioChunk, read_chunk
from cosyvoice_client.errors import ClientError, RefusedError
from cosyvoice_client.request import SpeechRequest, message_inputs
from cosyvoice_client.responses import END_WAIT_S, Responses

NAME_BYTES = 24
"""Of chance in an utterance's name: whoever knows it can add text."""

Calls = AsyncIterator[dict[str, Any]]


class TextSpeech:
    """An utterance, used in ``async with``: text goes in by :meth:`push`, chunks come out by ``async for``.

    The two go on side by side, in tasks of their own. Leaving the block before the end of the chunks ends the
    utterance on the server. Pieces may end anywhere, even within a word or a number: what sounds how depends
    on the text alone. A clause is spoken as soon as the next word begins, or the text is flushed.

    Attributes:
        name: of the utterance; who knows it can add text.

    Raises (all methods, and the block when it is entered):
        ClientError: the server can't be reached, refuses, or stays silent.
    """

    def __init__(
        self, stream: Callable[[Calls], Responses], request: SpeechRequest, model: str, request_id: str
    ) -> None:
        self._stream = stream
        self._request = request
        self._model = model
        self._request_id = request_id
        self.name = secrets.token_urlsafe(NAME_BYTES)
        self._chunks: asyncio.Queue[AudioChunk | None] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._exchanges: set[asyncio.Task[None]] = set()
        self._started = 0.0

    async def push(self, text: str) -> None:
        """Add text; returns when the server has it."""
        await self._say("push", text)

    async def flush(self) -> None:
        """Have all text so far spoken to its end; what follows begins a new segment."""
        await self._say("flush")

    async def end(self) -> None:
        """Say that no more text comes."""
        await self._say("end")

    async def cancel(self) -> None:
        """End the utterance at once, whatever has not been spoken yet."""
        await self._say("cancel")

    async def __aiter__(self) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order, until the end of the text."""
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
        self._chunks.put_nowait(None)
        await self._reading

    async def __aenter__(self) -> TextSpeech:
        self._started = time.perf_counter()
        self._speech = self._stream(_once(self._call("open", self._request)))
        try:
            await self._speech.next()  # says that the utterance is open
        except BaseException:
            self._speech.cancel()
            raise
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leaving = asyncio.ensure_future(self._leave())
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            await asyncio.wait([leaving], timeout=END_WAIT_S)
            raise

    async def _leave(self) -> None:
        """End the utterance in band: a stream that is cancelled just as it ends can crash Triton 24.10."""
        if not self._reading.done():
            with contextlib.suppress(ClientError, asyncio.TimeoutError):
                await asyncio.wait_for(self._say("cancel"), END_WAIT_S)
            await asyncio.wait([self._reading], timeout=END_WAIT_S)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)  # its failure was told, or is nobody's
        self._speech.cancel()

    async def _say(self, event: str, text: str = "") -> None:
        """Send a message and wait for its answer; never cancelled, for the same reason."""
        call = self._call(event, SpeechRequest(text))
        exchange = asyncio.create_task(self._exchange(call))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._ended)
        try:
            await asyncio.shield(exchange)
        except RefusedError as error:
            raise await self._reason(error) from None

    async def _exchange(self, call: dict[str, Any]) -> None:
        async with self._turn:
            self._speech.alive()
            answer = self._stream(_once(call))
            try:
                while await answer.next() is not None:
                    continue
            finally:
                answer.cancel()  # of one that has not come; what has ended is not touched

    def _ended(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        if not exchange.cancelled():
            exchange.exception()  # of a message whose sender has left

    async def _reason(self, refusal: RefusedError) -> ClientError:
        """Why a message was refused: because the utterance has failed, if it has."""
        if refusal.kind == "not_found":
            await asyncio.wait([self._reading], timeout=END_WAIT_S)
        if self._reading.done() and not self._reading.cancelled():
            failure = self._reading.exception()
            return failure if isinstance(failure, ClientError) else refusal
        return refusal

    async def _read(self) -> None:
        try:
            while (result := await self._speech.next()) is not None:
                chunk = read_chunk(result, time.perf_counter() - self._started)
                if chunk is not None:
                    self._chunks.put_nowait(chunk)
        finally:
            self._chunks.put_nowait(None)

    def _call(self, event: str, request: SpeechRequest) -> dict[str, Any]:
        return {
            "model_name": self._model,
            "inputs": message_inputs(triton, request, self.name, event),
            "request_id": self._request_id,
        }


async def _once(item: dict[str, Any]) -> Calls:
    yield item
