"""Stands for cosyvoice2: sends the chunks of an utterance to a child, one after another, in a thread."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END


class TritonPythonModel:
    def initialize(self, args):  # noqa: ARG002
        self.pool = ThreadPoolExecutor(128)

    def execute(self, requests):
        for request in requests:
            self.pool.submit(self.speak, request, request.get_response_sender())

    def speak(self, request, sender):
        child, utterance, sizes = (value(request, name) for name in ("child", "utterance", "sizes"))
        try:
            seconds, rows = run(child[0].decode(), int(utterance[0]), sizes.tolist())
        except Exception as error:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))), flags=FINAL)
            return
        outputs = [
            pb_utils.Tensor("seconds", np.array(seconds, np.float32)),
            pb_utils.Tensor("rows", np.array(rows, np.int32)),
        ]
        sender.send(pb_utils.InferenceResponse(outputs), flags=FINAL)


def run(child, utterance, sizes):
    """Seconds that each chunk took, and rows of the batch it was in."""
    seconds, rows = [], []
    for index, size in enumerate(sizes):
        flags = START * (index == 0) | END * (index == len(sizes) - 1)
        started = time.perf_counter()
        rows.append(call(child, size, {"correlation_id": utterance, "flags": flags}))
        seconds.append(time.perf_counter() - started)
    return seconds, rows


def call(child, size, sequence):
    response = pb_utils.InferenceRequest(
        model_name=child,
        requested_output_names=["rows", "echo"],
        inputs=[pb_utils.Tensor("speech_tokens", np.arange(size, dtype=np.int32)[None])],
        **(sequence if child == "oldest" else {}),
    ).exec()
    if response.has_error():
        raise RuntimeError(response.error().message())
    echo = pb_utils.get_output_tensor_by_name(response, "echo").as_numpy()
    if echo.shape != (1, size):
        raise RuntimeError(f"{size} tokens came back as {echo.shape}")
    return int(pb_utils.get_output_tensor_by_name(response, "rows").as_numpy()[0, 0])


def value(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
