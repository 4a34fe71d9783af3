"""The speech server, as the front calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import quote

from cosyvoice_client import AsyncSpeechClient, AudioChunk, ClientError, InvalidArgumentError, SpeechRequest
from cosyvoice_client.address import names_several
from cosyvoice_front import older_server
from cosyvoice_front.audit import begin_call
from cosyvoice_front.errors import ApiError, of_client, overloaded
from cosyvoice_front.keys import EVERYBODY
from cosyvoice_front.rate import at_front_rate
from cosyvoice_front.resume import Counted, TextSpeech, UnbrokenText, unbroken
from cosyvoice_runtime.audio.silence import TrimSilence
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import FrontSettings

T = TypeVar("T")
OpenText = Callable[[SpeechRequest, str, str | None], AbstractAsyncContextManager[TextSpeech]]

PING_S, PING_OF_SEVERAL_S = 6.0, 2.0
"""Time after which a silent server is asked for a sign of life, where there are others, too: one that has
vanished is noticed within one and a half times this."""
READY_TIMEOUT_S = 5.0
"""Longest wait until the server says whether it is ready."""


class Upstream(Protocol):
    """The part of :class:`~cosyvoice_client.AsyncSpeechClient` that is needed here."""

    url: str

    def speak(
        self, request: SpeechRequest, request_id: str = "", name: str | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order."""

    def speak_text(
        self, request: SpeechRequest, request_id: str = "", name: str | None = None
    ) -> AbstractAsyncContextManager[TextSpeech]:
        """Speech of a text that comes piece by piece; leaving it early cancels the request on the server."""

    async def ready(self, timeout_s: float) -> bool:
        """Whether it takes requests."""

    async def close(self) -> None:
        """End the connection."""


class SpeechServer:
    """Speaks through the server, or through one of many; its errors are those of this API.

    The server, when it is full, knows whose turn it is by the owner of the key.

    Args:
        resumes: counts the utterances that another server goes on with; None where none does.
        trim_silence: the servers', of requests that don't say it.
    """

    def __init__(
        self, upstream: Upstream, resumes: Counted | None = None, trim_silence: TrimSilence = "off"
    ) -> None:
        self._upstream = upstream
        self._resumes = resumes
        self._trim_silence = trim_silence

    @classmethod
    def connect(
        cls, settings: FrontSettings, resumes: Counted, trim_silence: TrimSilence = "off"
    ) -> SpeechServer:
        """To be called in the event loop that uses it; an InvalidInput tells of an address that leads
        nowhere."""
        try:
            client = AsyncSpeechClient(
                settings.grpc_url,
                timeout_s=settings.silence_timeout_s,
                proxy=False,
                balancing=settings.balancing,
                ping_s=PING_OF_SEVERAL_S if names_several(settings.grpc_url) else PING_S,
                trace=begin_call,
            )
        except InvalidArgumentError as error:
            raise InvalidInput("front.grpc_url", settings.grpc_url, str(error)) from None
        return cls(client, resumes if settings.resume else None, trim_silence)

    async def speak(
        self, request: SpeechRequest, request_id: str, owner: str
    ) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order; closing the generator cancels the request on the server.

        Raises:
            ApiError: chunks may have come before.
        """
        try:
            ask = self._upstream.speak
            ask = partial(older_server.spoken, ask) if request.words else ask
            speak = partial(_with_tokens, ask, request, request_id, _name(owner))
            segments = self._characters(request)
            spoken = unbroken(speak, self._resumes, segments) if self._resumes else speak(None)
            async with aclosing(spoken), aclosing(at_front_rate(spoken)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ClientError as error:
            raise self.told(error) from error

    def _characters(self, request: SpeechRequest) -> int:
        """Characters of a text whose segments are asked for alone; 0 where silence of one is sent with the
        next, or the text is in turns."""
        trims = request.trim_silence or self._trim_silence
        return 0 if trims == "both" or request.turns else len(request.text)

    @asynccontextmanager
    async def speak_text(
        self, request: SpeechRequest, request_id: str, owner: str
    ) -> AsyncIterator[TextSpeech]:
        """Speech of a text that comes piece by piece; leaving it early cancels the request on the server.

        Raises:
            ApiError: at any time, out of whatever is done in the context.
        """
        try:
            ask: OpenText = self._upstream.speak_text
            ask = partial(older_server.opened, ask) if request.words else ask
            open_text = partial(_with_tokens, ask, request, request_id, _name(owner))
            async with UnbrokenText(open_text, self._resumes) if self._resumes else open_text(None) as speech:
                yield speech
        except ClientError as error:
            raise self.told(error) from error

    async def check(self) -> None:
        """Raise an ApiError where the server can't speak now, or doesn't answer."""
        try:
            ready = await self._upstream.ready(READY_TIMEOUT_S)
        except ClientError as error:
            raise self.told(error) from error
        if not ready:
            raise overloaded("The speech server is not ready.")

    def told(self, error: ClientError) -> ApiError:
        """The error, as clients of this API are told it."""
        return of_client(error, self._upstream.url)

    async def close(self) -> None:
        await self._upstream.close()


def _with_tokens(
    ask: Callable[[SpeechRequest, str, str | None], T],
    request: SpeechRequest,
    request_id: str,
    name: str | None,
    spoken: Sequence[int] | None,
    start: int | None = None,
) -> T:
    """Ask for speech that has these tokens so far; None where nobody would go on with it.

    Args:
        start: character of the text that it begins with; None for the request's own.
    """
    start = request.start_character if start is None else start
    return ask(replace(request, spoken_tokens=spoken, start_character=start), request_id, name)


def _name(owner: str) -> str | None:
    """By which the server knows an owner, in ASCII as gRPC needs it.

    None where no keys are asked for: all callers would have one turn together, and those without a name have
    one each.
    """
    return None if owner == EVERYBODY else quote(owner)
