"""Requests from one model to another through the server's own gRPC port.

Slower than BLS by about a millisecond, and sound: the BLS of Triton 2.51 loses answers and kills processes
when threads use it (docs/decisions.md).
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from cosyvoice_runtime.serving.speech.token_queue import StageSilentError
from cosyvoice_runtime.serving.triton.calls import CallError, Outputs

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
DEADLINE = "StatusCode.DEADLINE_EXCEEDED"


class GrpcCalls:
    """Calls to the server at ``url`` (``host:port``). Safe for threads.

    Args:
        timeout_s: longest wait for an answer, and between two answers of a stream.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._client = self._connected()

    def call(self, model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = "") -> Outputs:
        """Run a model that answers once.

        Raises:
            CallError: the model refused or failed.
            StageSilentError: it did not answer in time.
        """
        try:
            result = self._client.infer(
                model,
                _inputs(inputs),
                outputs=_wanted(outputs),
                request_id=request_id,
                client_timeout=self._timeout_s,
            )
        except InferenceServerException as error:
            raise self._failure(model, error) from None
        return _outputs(result, outputs)

    def stream(
        self, model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = ""
    ) -> Iterator[Outputs]:
        """Run a decoupled model; each response as it comes. To be read to its end.

        Raises:
            CallError: the model refused or failed.
            StageSilentError: nothing came in time.
        """
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._connected() as client:
            client.start_stream(lambda result, error: answers.put(error or result))
            client.async_stream_infer(
                model,
                _inputs(inputs),
                outputs=_wanted(outputs),
                request_id=request_id,
                enable_empty_final_response=True,
            )
            while True:
                answer = self._next(model, answers)
                if answer.get_response().outputs:
                    yield _outputs(answer, outputs)
                if answer.get_response().parameters["triton_final_response"].bool_param:
                    client.stop_stream()
                    return

    def close(self) -> None:
        self._client.close()

    def _connected(self) -> triton.InferenceServerClient:
        return triton.InferenceServerClient(self._url, channel_args=UNLIMITED)

    def _next(self, model: str, answers: queue.SimpleQueue[Any]) -> Any:
        try:
            answer = answers.get(timeout=self._timeout_s)
        except queue.Empty:
            raise StageSilentError(f"{model} sent nothing for {self._timeout_s:g} s") from None
        if isinstance(answer, InferenceServerException):
            raise self._failure(model, answer)
        return answer

    def _failure(self, model: str, error: InferenceServerException) -> Exception:
        if error.status() == DEADLINE:
            return StageSilentError(f"{model} did not answer within {self._timeout_s:g} s")
        return CallError(error.message(), (error.status() or "").removeprefix("StatusCode."))


def _inputs(arrays: Outputs) -> list[triton.InferInput]:
    inputs = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(np.ascontiguousarray(array))
        inputs.append(tensor)
    return inputs


def _wanted(names: Sequence[str]) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name) for name in names]


def _outputs(result: Any, names: Sequence[str]) -> Outputs:
    arrays = {name: result.as_numpy(name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None}
