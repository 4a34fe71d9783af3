"""Requests from one model to another within the server (BLS)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.serving.speech.token_queue import StageSilentError
from cosyvoice_runtime.serving.triton.calls import CallError, Outputs
from cosyvoice_runtime.serving.triton.gate import GATE


class BlsCalls:
    """Calls through the python backend.

    Args:
        concurrency: most calls at a time.
        timeout_s: longest wait for the answer of a model that answers once.
    """

    def __init__(self, concurrency: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        # A call to a model whose process has died never returns; a thread of its own bounds the wait.
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="call")

    def call(self, model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = "") -> Outputs:
        """Run a model that answers once.

        Raises:
            CallError: the model refused or failed.
            StageSilentError: it did not answer in time.
        """
        answers = functools.partial(self.stream, model, inputs, outputs, request_id)
        future = self._pool.submit(lambda: list(answers()))
        try:
            [answer] = future.result(self._timeout_s)
        except FutureTimeoutError:
            raise StageSilentError(f"{model} did not answer within {self._timeout_s:g} s") from None
        return answer

    def stream(
        self, model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = ""
    ) -> Iterator[Outputs]:
        """Run a model; each response as it comes. To be read to its end.

        Raises:
            CallError: the model refused or failed.
        """
        request = pb_utils.InferenceRequest(
            model_name=model,
            requested_output_names=list(outputs),
            inputs=[pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in inputs.items()],
            request_id=request_id,
        )
        with GATE:
            # Decoupled also for a model that is not: it returns at once and waits in next(), unlocked.
            responses = request.exec(decoupled=True)
        for response in responses:
            if response.has_error():
                raise CallError(response.error().message(), "INTERNAL")
            if response.output_tensors():
                yield _outputs(response, outputs)

    def close(self) -> None:
        self._pool.shutdown(wait=False)


def _outputs(response: Any, names: Sequence[str]) -> Outputs:
    tensors = {name: pb_utils.get_output_tensor_by_name(response, name) for name in names}
    return {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
