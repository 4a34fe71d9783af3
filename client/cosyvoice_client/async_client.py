"""Streaming and whole utterances over gRPC, for asyncio: many streams in one thread."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc

from cosyvoice_client.channel import open_channel
from cosyvoice_client.chunk import AudioChunk, read_chunk
from cosyvoice_client.errors import LostError, RefusedError, UnavailableError
from cosyvoice_client.request import OFFLINE_MODEL, STREAMING_MODEL, SpeechRequest
from cosyvoice_client.responses import Responses
from cosyvoice_client.text_speech import TextSpeech
from cosyvoice_client.tries import Tries
from cosyvoice_client.wire import ELSEWHERE_HEADER, NAME_HEADER, REQUEST_HEADER, call_error, infer_request

Metadata = tuple[tuple[str, str], ...]
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
"""The method of Triton's protocol that streams."""


class AsyncSpeechClient:
    """Connections to a server's gRPC port, or to those of several servers, for any number of utterances.

    Args:
        url: ``host:port`` of one server, or of a proxy before many. ``dns:///host:port``, whose name leads to
            many servers, or their addresses with commas between them: each request goes to the next server,
            and one that is refused to another, three at most.
        timeout_s: longest wait for the next chunk, or for a whole utterance.
        name: of this client, for its turn among others when the server is full. A client that asks for many
            users names each of them with the request.
        proxy: whether gRPC may go through a proxy that the environment names. It never does to an address
            of this machine.
        balancing: ``round_robin`` as said above, or ``pick_first``: all requests go to one of the servers.
        ping_s: time after which a silent server is asked for a sign of life, which it has half of that time
            to give; 0 to wait for ``timeout_s``. A tritonserver without this product's gateway ends a
            connection that has asked five times in one silence, and gRPC then asks half as often.
        trace: adds the headers of the caller's trace to a dict, once for each call to a server:
            ``opentelemetry.propagate.inject`` does. None sends no trace.

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
        balancing: str = "round_robin",
        ping_s: float = 0.0,
        trace: Callable[[dict[str, str]], None] | None = None,
    ) -> None:
        opened = open_channel(url, proxy=proxy, balancing=balancing, ping_s=ping_s)
        self.url = opened.name
        self.streaming_model = streaming_model
        self.offline_model = offline_model
        self.timeout_s = timeout_s
        self._name = name
        self._trace = trace
        self._asks_elsewhere = opened.asks_elsewhere
        self._tries = Tries(opened.asks_elsewhere)
        self._channel = opened.channel
        self._server = service_pb2_grpc.GRPCInferenceServiceStub(opened.channel)
        # A stream with one request, which leaves together with the call's metadata, and with its end. In a
        # stream that is written to, gRPC waits for its own thread between them.
        self._ask_for_speech = opened.channel.unary_stream(
            STREAM_INFER,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
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
        asked = self._asked(self.streaming_model, request, request_id)
        started = time.perf_counter()
        responses, result = await self._tries.offer(partial(self._begun, asked, name, request_id))
        try:
            while result is not None:
                chunk = read_chunk(result, time.perf_counter() - started)
                if chunk is not None:
                    yield chunk
                result = await responses.next()
        finally:
            responses.cancel()

    async def _begun(self, asked: Any, name: str | None, request_id: str) -> tuple[Responses, Any]:
        """A stream with a request, and its first result."""
        # Without the header triton_grpc_error, which ends a failed stream with gRPC's status: Triton 24.10
        # crashes, for all its clients, if an error comes while a chunk is still on its way.
        responses = self._responses(self._ask_for_speech(asked, metadata=self._metadata(name, request_id)))
        try:
            return responses, await responses.next()
        except BaseException:
            responses.cancel()
            raise

    def speak_text(self, request: SpeechRequest, request_id: str = "", name: str | None = None) -> TextSpeech:
        """Speech of a text that comes piece by piece, from its first clause on; see :class:`TextSpeech`.

        Args:
            request: how to speak; its text is the first piece, and may be empty.
            name: whom the request is for, in place of the client's own name.
        """
        stream = partial(self._stream, name, request_id)
        return TextSpeech(stream, request, self.streaming_model, request_id, self._tries)

    async def synthesize(self, request: SpeechRequest, request_id: str = "") -> AudioChunk:
        """The whole utterance at once, from the offline model. Cancelling the task cancels the request.

        Raises:
            ClientError: the server can't be reached, refuses, or stays silent.
        """
        started = time.perf_counter()
        asked = self._asked(self.offline_model, request, request_id)

        async def ask() -> Any:
            return await self._ask("ModelInfer", asked, self.timeout_s, self._metadata(None, request_id))

        answer = await self._tries.offer(ask)
        chunk = read_chunk(InferResult(answer), time.perf_counter() - started)
        if chunk is None:
            raise RefusedError(f"{self.url}: {self.offline_model} answered without a waveform")
        return chunk

    async def statistics(self) -> dict[str, Any]:
        """Triton's own counters of all models, as its protocol names them; numbers of 64 bits are strings."""
        answer = await self._ask("ModelStatistics", service_pb2.ModelStatisticsRequest(), self.timeout_s)
        return MessageToDict(answer, preserving_proto_field_name=True)

    async def server(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        answer = await self._ask("ServerMetadata", service_pb2.ServerMetadataRequest(), self.timeout_s)
        return MessageToDict(answer, preserving_proto_field_name=True)

    async def ready(self, timeout_s: float) -> bool:
        """Whether the streaming model takes requests, on any of the next ones of several servers.

        Raises:
            ClientError: the server can't be reached, or says nothing for so long.
        """
        asked = service_pb2.ModelReadyRequest(name=self.streaming_model)

        async def ask() -> bool:
            answer = await self._ask("ModelReady", asked, timeout_s)
            if not answer.ready:
                raise UnavailableError(f"{self.url}: {self.streaming_model} is not ready")
            return True

        try:
            return await Tries(self._asks_elsewhere).offer(ask)
        except LostError:
            raise
        except UnavailableError:
            return False

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncSpeechClient:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _asked(self, model: str, request: SpeechRequest, request_id: str) -> Any:
        tells_tokens = request.spoken_tokens is not None
        return infer_request(model, request.tensors(), request_id, tells_tokens=tells_tokens)

    def _stream(self, name: str | None, request_id: str) -> Responses:
        return self._responses(self._server.ModelStreamInfer(metadata=self._metadata(name, request_id)))

    def _responses(self, call: Any) -> Responses:
        return Responses(call, self.url, self.timeout_s, self._refusal)

    async def _ask(self, method: str, request: Any, timeout_s: float, metadata: Metadata = ()) -> Any:
        try:
            return await getattr(self._server, method)(request, timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise call_error(error, self.url) from error

    def _metadata(self, name: str | None, request_id: str) -> Metadata:
        asking = self._name if name is None else name
        said = [(NAME_HEADER, asking)] if asking is not None else []
        if request_id.isascii() and request_id.isprintable() and request_id:
            said.append((REQUEST_HEADER, request_id))
        if self._trace is not None:
            headers: dict[str, str] = {}
            self._trace(headers)
            said += headers.items()
        return (*said, (ELSEWHERE_HEADER, "1")) if self._asks_elsewhere else tuple(said)

    async def _refusal(self) -> str | None:
        """The status with which Triton refuses a call to the streaming model; None if it doesn't."""
        asked = service_pb2.ModelMetadataRequest(name=self.streaming_model)
        try:
            await self._server.ModelMetadata(asked, timeout=self.timeout_s)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return None
