"""By which name a model's log calls a request that fails unexpectedly."""

from __future__ import annotations

import json

import pytest
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.serving.triton.request import Reply, answer


@pytest.mark.parametrize(
    ("request_id", "header", "named"),
    [("mine", "call-7", "mine"), ("", "call-7", "call-7"), ("mine", None, "mine"), ("", None, "-")],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_log_names_the_request_that_failed(request_id, header, named, streamed, caplog):
    said = {} if header is None else {"X-Request-Id": header}
    request = InferenceRequest({}, request_id, json.dumps(said))
    with Reply(request, "cosyvoice2", streamed):
        raise KeyError("text")
    assert f"unexpected failure in cosyvoice2, request {named}\n" in caplog.text


def test_log_names_the_request_of_a_batch_that_failed(caplog):
    answer(InferenceRequest({}, "mine"), "token2wav", KeyError("chunk"))
    assert "unexpected failure in token2wav, request mine\n" in caplog.text
