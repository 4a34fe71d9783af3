"""Speech over OpenAI's API, as the raw samples that the front streams.

It is written on asyncio's streams, as aiohttp takes a millisecond of CPU before the first byte.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from cosyvoice_client import AudioChunk, ClientError, InvalidArgumentError, RefusedError, UnavailableError
from cosyvoice_client.errors import ServerTimeoutError

FULL = (429, 503)
STREAMED_PCM = {"response_format": "pcm", "stream": True, "stream_format": "audio"}
PATH = "/v1/audio/speech"
FIRST_SAMPLES = 1440
"""The front sends so many samples of the first chunk apart (``cosyvoice_front.spoken``), where none joins."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, eq=False)
class HttpPart(AudioChunk):
    """A part of the answer as one read of the body brought it.

    Attributes:
        ends: whether a chunk of the server's ends with it.
    """

    ends: bool = False


class FrontSpeech:
    """Speaks through a front; connections are kept.

    Args:
        url: its base, such as ``http://127.0.0.1:8080``.
        body: fields of every request, beside its text and its format.
        timeout_s: longest time of a request.

    Raises:
        InvalidArgumentError: the URL is none of HTTP.
    """

    def __init__(self, url: str, body: dict[str, Any], key: str, timeout_s: float) -> None:
        self._url = urlsplit(url.rstrip("/"))
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise InvalidArgumentError(f"{url}: give http://host:port")
        lines = [f"POST {self._url.path}{PATH} HTTP/1.1", f"Host: {self._url.netloc}"]
        lines += [f"Authorization: Bearer {key}"] if key else []
        self._head = "\r\n".join([*lines, "Content-Type: application/json", "Content-Length: "])
        self._body = body | STREAMED_PCM
        self._timeout_s = timeout_s
        self._idle: list[Connection] = []

    async def speak(self, text: str) -> AsyncGenerator[HttpPart, None]:
        """Chunks as they arrive, without half samples.

        Raises:
            ClientError: ``unavailable`` for 429 and 503, ``http_400`` and so on, ``lost`` for a connection,
                ``no_pcm`` for another type and for a body that ends within a sample, ``timeout``.
        """
        left, position, started = b"", 0, time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s), aclosing(self._answer(text)) as parts:
                async for part, ends in parts:
                    data = left + part
                    left = data[len(data) & ~1 :]
                    samples = np.frombuffer(data, "<i2", len(data) // 2).astype(np.float32) / 32768
                    position += len(samples)
                    is_end = ends and position != FIRST_SAMPLES
                    yield HttpPart(samples, time.perf_counter() - started, ends=is_end)
        except TimeoutError as error:
            raise ServerTimeoutError(f"{self._url.netloc}: not done in {self._timeout_s:g} s") from error
        except (OSError, EOFError) as error:
            raise RefusedError(f"{self._url.netloc}: {error}", "lost") from error
        if left:
            raise RefusedError(f"{self._url.netloc}: the body ends within a sample", "no_pcm")

    async def close(self) -> None:
        """Close the connections that are idle."""
        for _, writer in self._idle:
            writer.close()

    async def _answer(self, text: str) -> AsyncGenerator[tuple[bytes, bool], None]:
        body = json.dumps({**self._body, "input": text}).encode()
        reader, writer = await self._connection()
        is_whole = False
        try:
            writer.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
            status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            parts = _parts(reader, headers)
            if status != 200:
                raise _refusal(status, b"".join([part async for part, _ in parts]).decode("utf-8", "replace"))
            if not headers.get("content-type", "").startswith("audio/pcm"):
                raise RefusedError(f"{self._url.netloc}: {headers.get('content-type')} is no pcm", "no_pcm")
            async for part, ends in parts:
                yield part, ends
            is_whole = headers.get("connection") != "close"
        finally:
            if is_whole:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def _connection(self) -> Connection:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        secure = self._url.scheme == "https"
        port = self._url.port or (443 if secure else 80)
        return await asyncio.open_connection(self._url.hostname, port, ssl=secure or None)


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer, by their names in small letters."""
    first, *lines = head.decode("latin-1").splitlines()
    fields = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}


async def _parts(
    reader: asyncio.StreamReader, headers: dict[str, str]
) -> AsyncGenerator[tuple[bytes, bool], None]:
    """The body as it arrives, and whether a chunk of it ends there; an EOFError where it ends too soon."""
    is_chunked = headers.get("transfer-encoding") == "chunked"
    left = 0 if is_chunked else int(headers.get("content-length", "0"))
    while left or (is_chunked and (left := int(await reader.readuntil(b"\n"), 16))):
        while left:
            part = await reader.read(left)
            if not part:
                raise EOFError("the connection ended within the body")
            left -= len(part)
            yield part, not left
        if is_chunked:
            await reader.readexactly(2)
    if is_chunked:
        await reader.readexactly(2)


def _refusal(status: int, message: str) -> ClientError:
    return UnavailableError(message) if status in FULL else RefusedError(message, f"http_{status}")
