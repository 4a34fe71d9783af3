"""Client of the test models."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from cosyvoice_runtime.supervisor import Server

TIMEOUT_S = 180.0


class CountStream:
    """A running request for the numbers below ``count``."""

    def __init__(self, server: Server, model: str, count: int, pause_ms: int = 0) -> None:
        self._responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._ended = False
        self._client = triton.InferenceServerClient(server.grpc_url)
        self._client.start_stream(callback=lambda result, error: self._responses.put((result, error)))
        inputs = [_scalar("COUNT", count), _scalar("PAUSE_MS", pause_ms)]
        self._client.async_stream_infer(model, inputs, enable_empty_final_response=True)

    def first(self) -> int:
        """Wait for the first number."""
        return self._next()[0]

    def rest(self) -> list[int]:
        """Numbers until the final response."""
        values: list[int] = []
        while True:
            got, final = self._next_or_final()
            values += got
            if final:
                return values

    def close(self) -> None:
        # Triton 24.10 may abort when a stream is cancelled just as it ends.
        self._client.stop_stream(cancel_requests=not self._ended)
        self._client.close()

    def _next(self) -> list[int]:
        return self._next_or_final()[0]

    def _next_or_final(self) -> tuple[list[int], bool]:
        result, error = self._responses.get(timeout=TIMEOUT_S)
        if error is not None:
            raise error
        value = result.as_numpy("VALUE")
        self._ended = result.get_response().parameters["triton_final_response"].bool_param
        return [] if value is None else [int(value[0])], self._ended


def _scalar(name: str, value: int) -> Any:
    tensor = triton.InferInput(name, [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    return tensor
