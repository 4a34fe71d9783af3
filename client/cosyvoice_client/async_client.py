"""Streaming and whole utterances over gRPC, for asyncio: many streams in one thread."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from types import TracebackType
from typing import Any

import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from cosyvoice_client.address import DIRECT, grpc_address, is_here
from cosyvoice_client.chunk import AudioChunk, read_chunk
from cosyvoice_client.errors import RefusedError, server_error
from cosyvoice_client.request import OFFLINE_MODEL, STREAMING_MODEL, SpeechRequest, infer_inputs
from cosyvoice_client.responses import Responses
from cosyvoice_client.text_speech import TextSpeech

UNLIMITED = -1
NAME_HEADER = "x-client-id"
"""Names a client; those without it can't be told apart."""
CHANNEL = [
    ("grpc.max_send_message_length", UNLIMITED),
    ("grpc.max_receive_message_length", UNLIMITED),
    # Otherwise all clients of a process share one connection, and with it one flow-control window.
    ("grpc.use_local_subchannel_pool", 1),
    # Otherwise a server that was away for a minute is not asked for half a minute after it is back.
    ("grpc.max_reconnect_backoff_ms", 500),
]


class AsyncSpeechClient:
    """One connection to a server's gRPC port, for any number of utterances at a time.

    Args:
        url: ``host:port``.
        timeout_s: longest wait for the next chunk, or for a whole utterance.
        name: of this client, for its turn among others when the server is full. A client that asks for many
            users names each of them with the request.
        proxy: whether gRPC may go through a proxy that the environment names. It never does to an address
            of this machine.

    Raises:
        InvalidArgumentError: the URL is none that gRPC can use.
    """

    def __init__(
        self,
        url: str = "localhost:8001",
        streaming_model: str = STREAMING_MODEL,
        offline_model: str = OFFLINE_MODEL,
        timeout_s: float = 60.0,
        name: str | None = None,
        proxy: bool = True,
    ) -> None:
        self.url = grpc_address(url)
        self.streaming_model = streaming_model
        self.offline_model = offline_model
        self.timeout_s = timeout_s
        self._name = name
        direct = is_here(self.url) or not proxy
        self._client = triton_aio.InferenceServerClient(
            self.url, channel_args=[*CHANNEL, DIRECT] if direct else CHANNEL
        )

    async def speak(
        self, request: SpeechRequest, request_id: str = "", name: str | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order. Cancelling the task, or closing the generator, cancels the request on the server;
        when leaving the loop early, close it with ``contextlib.aclosing``.

        Args:
            name: whom the request is for, in place of the client's own name.

        Raises:
            ClientError: the server can't be reached, refuses, or stays silent; chunks may have come before.
        """
        call = {
            "model_name": self.streaming_model,
            "inputs": infer_inputs(triton, request),
            "request_id": request_id,
        }
        started = time.perf_counter()
        # Without the header triton_grpc_error, which ends a failed stream with gRPC's status: Triton 24.10
        # crashes, for all its clients, if an error comes while a chunk is still on its way.
        responses = self._stream(_once(call), name)
        try:
            while (result := await responses.next()) is not None:
                chunk = read_chunk(result, time.perf_counter() - started)
                if chunk is not None:
                    yield chunk
        finally:
            responses.cancel()

    def speak_text(self, request: SpeechRequest, request_id: str = "", name: str | None = None) -> TextSpeech:
        """Speech of a text that comes piece by piece, from its first clause on; see :class:`TextSpeech`.

        Args:
            request: how to speak; its text is the first piece, and may be empty.
            name: whom the request is for, in place of the client's own name.
        """
        return TextSpeech(partial(self._stream, name=name), request, self.streaming_model, request_id)

    async def synthesize(self, request: SpeechRequest, request_id: str = "") -> AudioChunk:
        """The whole utterance at once, from the offline model. Cancelling the task cancels the request.

        Raises:
            ClientError: the server can't be reached, refuses, or stays silent.
        """
        started = time.perf_counter()
        try:
            result = await self._client.infer(
                self.offline_model,
                infer_inputs(triton, request),
                request_id=request_id,
                client_timeout=self.timeout_s,
                headers=self._headers(None),
            )
        except InferenceServerException as error:
            raise server_error(error.status(), error.message(), self.url) from error
        chunk = read_chunk(result, time.perf_counter() - started)
        if chunk is None:
            raise RefusedError(f"{self.url}: {self.offline_model} answered without a waveform")
        return chunk

    async def statistics(self) -> dict[str, Any]:
        """Triton's own counters of all models (``get_inference_statistics`` as JSON)."""
        try:
            return dict(
                await self._client.get_inference_statistics(as_json=True, client_timeout=self.timeout_s)
            )
        except InferenceServerException as error:
            raise server_error(error.status(), error.message(), self.url) from error

    async def server(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        try:
            return dict(await self._client.get_server_metadata(as_json=True, client_timeout=self.timeout_s))
        except InferenceServerException as error:
            raise server_error(error.status(), error.message(), self.url) from error

    async def ready(self, timeout_s: float) -> bool:
        """Whether the streaming model takes requests.

        Raises:
            ClientError: the server can't be reached, or says nothing for so long.
        """
        try:
            return bool(await self._client.is_model_ready(self.streaming_model, client_timeout=timeout_s))
        except InferenceServerException as error:
            raise server_error(error.status(), error.message(), self.url) from error

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()

    async def __aenter__(self) -> AsyncSpeechClient:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _stream(self, calls: AsyncIterator[dict[str, Any]], name: str | None) -> Responses:
        responses = self._client.stream_infer(calls, headers=self._headers(name))
        return Responses(responses, self.url, self.timeout_s, self._refusal)

    def _headers(self, name: str | None) -> dict[str, str] | None:
        asking = self._name if name is None else name
        return None if asking is None else {NAME_HEADER: asking}

    async def _refusal(self) -> str | None:
        """The status with which Triton refuses a call to the streaming model; None if it doesn't."""
        try:
            await self._client.get_model_metadata(self.streaming_model, client_timeout=self.timeout_s)
        except InferenceServerException as error:
            return error.status()
        return None


async def _once(item: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield item
