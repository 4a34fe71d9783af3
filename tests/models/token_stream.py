"""A client of the model ``tensorrt_llm``."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from cosyvoice_runtime.supervisor import Server

TIMEOUT_S = 180.0
DATATYPES = {
    "runtime_top_p": "FP32",
    "temperature": "FP32",
    "repetition_penalty": "FP32",
    "ras_threshold": "FP32",
    "seed": "UINT64",
    "streaming": "BOOL",
    "stop": "BOOL",
    "tell_attention": "BOOL",
    "exclude_input_in_output": "BOOL",
    "sampling_strategy": "BYTES",
}
"""Of the inputs that are not INT32."""


@dataclass
class Answer:
    """Everything that came for one request."""

    ids: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)


class TokenStream:
    """A running request."""

    def __init__(self, server: Server, ids: Sequence[int], request_id: str = "", **inputs: object) -> None:
        self._responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._ended = False
        self._client = triton.InferenceServerClient(server.grpc_url)
        self._client.start_stream(callback=lambda result, error: self._responses.put((result, error)))
        inputs = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": 1} | inputs
        self._client.async_stream_infer(
            "tensorrt_llm",
            [_tensor(name, value) for name, value in inputs.items() if value is not None],
            request_id=request_id,
            enable_empty_final_response=True,
        )
        self.answer = Answer()

    def wait(self) -> bool:
        """Wait for one response; whether it is the final one.

        Raises:
            InferenceServerException: the server's error.
        """
        result, error = self._responses.get(timeout=TIMEOUT_S)
        if error is not None:
            self._ended = True
            raise error
        ids = result.as_numpy("output_ids")
        if ids is not None:
            assert ids.shape == (1, 1, result.as_numpy("sequence_length")[0, 0])
            self.answer.ids += ids[0, 0].tolist()
            self.answer.groups.append(ids.size)
            if (rows := result.as_numpy("attention")) is not None:
                self.answer.rows += list(rows[0])
            self.answer.finish_reasons.append(result.as_numpy("finish_reason")[0, 0].decode())
        self._ended = result.get_response().parameters["triton_final_response"].bool_param
        return self._ended

    def read(self) -> Answer:
        """Wait for all responses."""
        while not self.wait():
            pass
        return self.answer

    def close(self) -> None:
        """Drop the connection; cancels what still runs."""
        # Triton 24.10 may abort when a stream is cancelled just as it ends.
        self._client.stop_stream(cancel_requests=not self._ended)
        self._client.close()


def _tensor(name: str, value: Any) -> triton.InferInput:
    datatype = DATATYPES.get(name, "INT32")
    if datatype == "BYTES":
        array = np.array([[value.encode()]], np.object_)
    else:
        array = np.array(value, triton.triton_to_np_dtype(datatype)).reshape(1, -1)
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array)
    return tensor
