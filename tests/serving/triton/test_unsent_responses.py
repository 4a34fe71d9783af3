"""Responses for which the server has no room: their requests end all the same."""

from __future__ import annotations

import numpy as np
import pytest
from triton_python_backend_utils import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceRequest,
    InferenceResponse,
    ResponseSender,
)

from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.serving.hosted.tensorrt_llm import TokenReply
from cosyvoice_runtime.serving.not_finite import NotFiniteCount
from cosyvoice_runtime.serving.triton.request import Reply


class FullServer(ResponseSender):
    """Has no room for responses; like the backend's own sender, which counts and closes before it finds out.

    Args:
        decoupled: whether a request may have several responses.

    Attributes:
        ended: whether the server knows that the request has ended.
    """

    def __init__(self, decoupled: bool) -> None:
        super().__init__()
        self.ended = False
        self._decoupled = decoupled
        self._closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self._closed:
            raise RuntimeError("Response sender has been closed.")
        if not self._decoupled and (response is None) != bool(self.flags):
            raise RuntimeError("Non-decoupled model sends one response.")
        self._closed = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        super().send(flags=flags)
        if response is not None:
            raise RuntimeError("Failed to increase the shared memory pool size.")
        self.ended = self._closed


def test_request_ends_without_its_only_response_which_the_log_tells(caplog):
    request = InferenceRequest({})
    request.sender = FullServer(decoupled=False)
    with Reply(request, "cosyvoice2_offline", streamed=False) as reply:
        reply.send_only(waveform=np.zeros((1, 5), np.float32))
    assert request.sender.ended
    assert "the response of cosyvoice2_offline to request - could not be sent" in caplog.text
    assert "shared memory" in caplog.text


def test_request_whose_end_cannot_be_sent_is_in_work_no_longer(tmp_path):
    request = InferenceRequest({})
    request.sender = FullServer(decoupled=True)
    count = RequestCount("tensorrt_llm", tmp_path)
    count.enter()
    reply = TokenReply(request, 0, count, NotFiniteCount(Metrics("tensorrt_llm", tmp_path), {}))
    with pytest.raises(RuntimeError, match="shared memory"):
        reply.send([1], FinishReason.STOP)
    with pytest.raises(RuntimeError, match="shared memory"):
        reply.finish(RuntimeError("no room"))
    assert count.count == 0
