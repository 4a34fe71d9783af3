"""Whole utterances over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.client import HTTPException

import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from cosyvoice_client.chunk import AudioChunk, read_chunk
from cosyvoice_client.errors import (
    ClientError,
    InvalidArgumentError,
    RefusedError,
    ServerTimeoutError,
    UnavailableError,
    server_error,
)
from cosyvoice_client.request import OFFLINE_MODEL, SpeechRequest, infer_inputs


class HttpSpeechClient:
    """Speaks through a server's HTTP port; tensors travel in binary.

    Args:
        url: ``host:port`` with or without ``http://`` before it.
        timeout_s: longest wait for the answer, which comes when the whole utterance is there.
        trace: adds the headers of the caller's trace to a dict, as :class:`AsyncSpeechClient` has it.
    """

    def __init__(
        self,
        url: str = "localhost:8000",
        model: str = OFFLINE_MODEL,
        timeout_s: float = 300.0,
        trace: Callable[[dict[str, str]], None] | None = None,
    ) -> None:
        self.url = url.removeprefix("http://").rstrip("/")
        self.model = model
        self.timeout_s = timeout_s
        self._trace = trace
        if "://" in self.url:
            raise InvalidArgumentError(f"{url}: only http:// is possible here")

    def synthesize(self, request: SpeechRequest, request_id: str = "") -> AudioChunk:
        """The whole utterance.

        Raises:
            ClientError: the server can't be reached, refuses, or stays silent.
        """
        inputs = infer_inputs(triton, request.tensors())
        headers: dict[str, str] = {}
        if self._trace is not None:
            self._trace(headers)
        started = time.perf_counter()
        try:
            with triton.InferenceServerClient(
                self.url, connection_timeout=self.timeout_s, network_timeout=self.timeout_s
            ) as client:
                result = client.infer(self.model, inputs, request_id=request_id, headers=headers)
        except InferenceServerException as error:
            raise server_error(error.status(), error.message(), self.url) from error
        except (OSError, HTTPException) as error:
            raise self._connection_error(error, time.perf_counter() - started) from error
        chunk = read_chunk(result, time.perf_counter() - started)
        if chunk is None:
            raise RefusedError(f"{self.url}: {self.model} answered without a waveform")
        return chunk

    def _connection_error(self, error: Exception, elapsed_s: float) -> ClientError:
        # The HTTP library says "connection closed" as well when it has waited too long.
        if elapsed_s >= self.timeout_s:
            return ServerTimeoutError(f"{self.url}: nothing came for {self.timeout_s:g} s")
        return UnavailableError(f"{self.url}: {getattr(error, 'strerror', None) or error}")
