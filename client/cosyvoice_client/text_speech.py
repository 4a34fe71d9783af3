"""Speech of a text that comes piece by piece, as from a language model whose answer is spoken."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

from cosyvoice_client.chunk import AudioChunk, read_chunk
from cosyvoice_client.errors import ClientError, RefusedError
from cosyvoice_client.request import SpeechRequest, message_tensors
from cosyvoice_client.responses import END_WAIT_S, Responses
from cosyvoice_client.tries import Tries
from cosyvoice_client.wire import Answer, infer_request

NAME_BYTES = 24
"""Of chance in an utterance's name: whoever knows it can add text."""


class TextSpeech:
    """An utterance, used in ``async with``: text goes in by :meth:`push`, chunks come out by ``async for``.

    The two go on side by side, in tasks of their own. Leaving the block before the end of the chunks ends the
    utterance on the server. Pieces may end anywhere, even within a word or a number: what sounds how depends
    on the text alone. A clause is spoken as soon as the next word begins, or the text is flushed.

    All messages go through one gRPC call, so that whatever balances calls keeps them together. Each message
    has an id of its own, by which its answer is known among the chunks.

    Attributes:
        name: of the utterance; who knows it can add text.

    Raises (all methods, and the block when it is entered):
        ClientError: the server can't be reached, refuses, or stays silent.
    """

    def __init__(
        self,
        stream: Callable[[], Responses],
        request: SpeechRequest,
        model: str,
        request_id: str,
        tries: Tries,
    ) -> None:
        self._tries = tries
        self._stream = stream
        self._request = request
        self._model = model
        self._request_id = request_id
        self.name = secrets.token_urlsafe(NAME_BYTES)
        self._chunks: asyncio.Queue[AudioChunk | None] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[None]] = {}
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
        self._speech = await self._tries.offer(self._opened)
        self._reading = asyncio.create_task(self._read())
        return self

    async def _opened(self) -> Responses:
        """A stream in which a server has opened the utterance."""
        speech = self._stream()
        tensors = message_tensors(self._request, self.name, "open")
        tells_tokens = self._request.spoken_tokens is not None
        asked = infer_request(self._model, tensors, self._request_id, True, tells_tokens)
        try:
            await speech.send(asked)
            await speech.next()  # says that the utterance is open
        except BaseException:
            speech.cancel()
            raise
        return speech

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
        with contextlib.suppress(ClientError, asyncio.TimeoutError):
            await asyncio.wait_for(self._speech.read_all(), END_WAIT_S)
        self._speech.cancel()

    async def _say(self, event: str, text: str = "") -> None:
        """Send a message and wait for its answer; never cancelled, for the same reason."""
        exchange = asyncio.create_task(self._exchange(event, SpeechRequest(text)))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._ended)
        await asyncio.shield(exchange)

    async def _exchange(self, event: str, message: SpeechRequest) -> None:
        async with self._turn:
            if self._reading.done():
                raise self._failure() or RefusedError(
                    f"{self._speech.url}: utterance_id: the utterance has ended", "not_found"
                )
            self._speech.alive()
            message_id = f"{self._request_id}#{next(self._numbers)}"
            tensors = message_tensors(message, self.name, event)
            answered = self._waiting[message_id] = asyncio.get_running_loop().create_future()
            try:
                await self._speech.send(infer_request(self._model, tensors, message_id, empty_final=True))
                await answered
            finally:
                self._waiting.pop(message_id, None)

    def _ended(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        if not exchange.cancelled():
            exchange.exception()  # of a message whose sender has left

    def _failure(self) -> ClientError | None:
        """Why the utterance has ended, if it has failed."""
        if self._reading.cancelled():
            return None
        failure = self._reading.exception()
        return failure if isinstance(failure, ClientError) else None

    async def _read(self) -> None:
        """Read the answers, each to whom it concerns, until the utterance has ended."""
        failure: ClientError | None = None
        try:
            while (answer := await self._speech.answer()) is not None:
                if answer.request_id in self._waiting:
                    await self._answered(self._waiting[answer.request_id], answer)
                    continue
                if answer.error:
                    raise await self._speech.told(answer.error)
                chunk = read_chunk(answer.result, time.perf_counter() - self._started)
                if chunk is not None:
                    self._chunks.put_nowait(chunk)
                if answer.final:
                    break
        except ClientError as error:
            failure = error
            raise
        finally:
            self._chunks.put_nowait(None)
            await self._speech.end_requests()
            self._end_waits(failure)

    async def _answered(self, waiting: asyncio.Future[None], answer: Answer) -> None:
        if waiting.done():
            return
        if answer.error:
            waiting.set_exception(await self._speech.told(answer.error))
        elif answer.final:
            waiting.set_result(None)

    def _end_waits(self, failure: ClientError | None) -> None:
        """The utterance has ended: what a message still waited for does not come any more."""
        for waiting in self._waiting.values():
            if waiting.done():
                continue
            if failure is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(failure)
