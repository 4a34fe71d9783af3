"""The speech server, as the front calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from cosyvoice_client import AsyncSpeechClient, AudioChunk, ClientError, SpeechRequest
from cosyvoice_front.errors import of_client
from cosyvoice_runtime.settings import FrontSettings


class Upstream(Protocol):
    """What :class:`~cosyvoice_client.AsyncSpeechClient` does, as far as it is needed here."""

    url: str

    def speak(self, request: SpeechRequest, request_id: str = "") -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order."""

    async def server(self) -> dict[str, Any]:
        """Name and version of the server."""

    async def close(self) -> None:
        """End the connection."""


class SpeechServer:
    """Speaks through the server; its errors are those of this API."""

    def __init__(self, upstream: Upstream, settings: FrontSettings) -> None:
        self._upstream = upstream
        self._retry_after_ms = settings.retry_after_ms

    @classmethod
    def connect(cls, settings: FrontSettings) -> SpeechServer:
        """To be called in the event loop that uses it."""
        return cls(AsyncSpeechClient(settings.grpc_url, timeout_s=settings.silence_timeout_s), settings)

    async def speak(self, request: SpeechRequest, request_id: str) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order; closing the generator cancels the request on the server.

        Raises:
            ApiError: chunks may have come before.
        """
        try:
            async with aclosing(self._upstream.speak(request, request_id)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ClientError as error:
            raise of_client(error, self._upstream.url, self._retry_after_ms) from error

    async def check(self) -> None:
        """
        Raises:
            ApiError: the server doesn't answer.
        """
        try:
            await self._upstream.server()
        except ClientError as error:
            raise of_client(error, self._upstream.url, self._retry_after_ms) from error

    async def close(self) -> None:
        await self._upstream.close()
